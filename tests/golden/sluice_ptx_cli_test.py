#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice-ptx as a person calls it: rewrite, report, print, exit statuses. Arguments: tool, golden
folder."""
import json
import pathlib
import subprocess
import sys
import tempfile

tool, golden = sys.argv[1], pathlib.Path(sys.argv[2])


def run(*arguments, status=0, text=None):
    done = subprocess.run([tool, *map(str, arguments)], input=text, capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    module = golden / "tiers.ptx"
    bad = folder / "bad.ptx"
    bad.write_text(".version 8.0\n.entry k() { add.u32 a, b\n")
    odd = folder / "odd.ptx"
    odd.write_text(".version 8.0\n.entry k() { add.u32 a, b }\n")

    lines = [json.loads(line) for line in run("report", "--json", module).stdout.splitlines()]
    assert len(lines) == 31, len(lines)
    for line in lines:
        assert {"file", "kernel", "tier", "evictable", "reason"} <= set(line), line
        assert line["evictable"] == (line["tier"] != "opaque"), line
        assert (line["reason"] == "") == (line["tier"] not in ("opaque", "prologue")), line
    assert any(line["kernel"] == "waits_for_flag" and "waits" in line["reason"] for line in lines)

    # A file that does not parse has a line of its own, and the others are still reported.
    done = run("report", "--json", bad, module, status=1)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["file"] == str(bad) and "line 2" in lines[0]["error"], lines[0]
    assert len(lines) == 32
    assert "line 2" in run("report", bad, status=1).stderr
    # A kernel that does not is opaque, and says where.
    line = json.loads(run("report", "--json", odd).stdout)
    assert line["code"] == "not-understood" and "line 2" in line["reason"], line
    run("report", folder / "missing.ptx", status=1)
    assert "no command or option 'nonsense'" in run("nonsense", status=2).stderr
    assert "no command or option '--nonsense'" in run("--nonsense", status=2).stderr

    out = folder / "out.ptx"
    run("rewrite", module, "-o", out)
    assert out.read_text() == run("rewrite", "-", text=module.read_text()).stdout
    assert "index_forms__sluice(" in out.read_text()
    assert run("print", module).stdout == module.read_text()
    assert "<%r1>" in run("print", "--statements", module).stdout
    after = run("print", "--after-each", module).stdout
    assert "// ---- barrier_after_return: unified\n" in after
    assert "given up: computes the number of a barrier" in after
    table = run("report", "--table", module).stdout
    assert "kernels\t31\n" in table and "opaque: waits\t2\n" in table, table

    # Clones do what originals do; a kernel that cannot be tried says why.
    shapes = golden / "shapes.ptx"
    checked = [json.loads(line) for line in
               run("check", shapes, "--rounds", "4", "--json", "--seed", "3").stdout.splitlines()]
    verdicts = {line["kernel"]: line["verdict"] for line in checked}
    assert verdicts["block_sum"] == verdicts["warp_sum"] == "same", checked
    assert verdicts["choose"] == "not checked", checked  # its blocks race
    assert "different" not in verdicts.values(), checked
    one = run("check", shapes, "--kernel", "reverse", "--grid", "3,2", "--block", "32", "--args",
              "buffer,96", "--shared", "4096").stdout
    assert one.startswith("reverse: plain: same"), one
    # Where a block runs is nothing that a clone has to repeat.
    where = folder / "where.ptx"
    where.write_text(""".version 8.0
.target sm_70
.address_size 64
.visible .entry where(.param .u64 to)
{
  .reg .b32 %r<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [to];
  mov.u32 %r1, %smid; mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; st.global.u32 [%d3], %r1;
  ret;
}
""")
    text = run("check", where, "--block", "1", "--args", "zeros").stdout
    assert text.startswith("where: plain: not checked") and "not compared" in text, text
    # Shared memory that the kernel has no name for.
    local = folder / "local.ptx"
    local.write_text(""".version 8.0
.target sm_70
.address_size 64
.visible .entry local(.param .u64 to, .param .u32 at)
{
  .reg .b32 %r<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [to]; ld.param.u32 %r1, [at];
  mov.u32 %r2, %ctaid.x;
  st.shared.u32 [%r1], %r2; ld.shared.u32 %r3, [%r1];
  mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; st.global.u32 [%d3], %r3;
  ret;
}
""")
    words = ("check", local, "--block", "1", "--args", "zeros,2000")
    assert "not checked" in run(*words).stdout
    assert run(*words, "--shared", "2004").stdout.startswith("local: plain: same")
    # Buffers of a size, of a file's contents, and in structures.
    (folder / "numbers").write_bytes(bytes(range(256)) * 16)
    copies = folder / "copies.ptx"
    copies.write_text(""".version 8.0
.target sm_70
.address_size 64
.visible .entry copies(.param .align 8 .b8 all[24], .param .u64 from)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<6>;
  ld.param.u64 %d1, [all]; ld.param.u32 %r1, [all+8]; ld.param.u64 %d2, [all+16];
  ld.param.u64 %d3, [from];
  mov.u32 %r2, %ctaid.x;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  mul.wide.u32 %d4, %r2, 4;
  add.u64 %d5, %d3, %d4; add.u64 %d5, %d5, %d2; ld.global.u32 %r3, [%d5];
  add.u64 %d5, %d1, %d4; st.global.u32 [%d5], %r3;
done:
  ret;
}
""")
    right = "zeros:512+100+4l,file:" + str(folder / "numbers")
    text = run("check", copies, "--grid", "128", "--block", "1", "--args", right).stdout
    assert text.startswith("copies: plain: same"), text
    for wrong, why in ((right.replace("512", "300"), "outside"),  # it writes 400 bytes
                       (right.replace("numbers", "no such file"), "cannot be read"),
                       (right.replace("512", "5x"), "not a size"),
                       (right.replace("4l", "4l+7"), "more members")):
        text = run("check", copies, "--grid", "128", "--block", "1", "--args", wrong).stdout
        assert text.startswith("copies: plain: not checked") and why in text, text
    assert "cannot be run here" in run("check", module, "--kernel", "index_forms").stdout
    run("check", module, "--kernel", "no_such", status=1)
    run("check", module, "--grid", "0", status=2)
    run("check", bad, status=1)
    run("rewrite", bad, status=1)
    run("rewrite", module, "-o", folder / "no" / "such", status=1)
    run(status=2)
    run("--help")
