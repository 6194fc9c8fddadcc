// SPDX-License-Identifier: Apache-2.0
// Rule clean-up: what a task has started and not waited for must not run into the next one, and
// what it has made in shared memory must be gone.
//
// mbarrier objects: each mbarrier.init of the body notes the object's address, with bit 0 set, in a
// word of its own behind the loop's shared memory; one of the body's own mbarrier.inval takes it
// off again. At the task's end, when all threads are there, the leader invalidates what is noted.
#include "kernels/passes/clone/clone.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

namespace {

class Objects {
 public:
  explicit Objects(Clone& clone) : clone_(clone) {
    clone.start.line(".reg .pred \t%~mp;")
        .line(".reg .b32 \t%~ma, %~mb, %~mc;")
        .line(".reg .b64 \t%~mw;");
    if (!dynamic())
      clone.start.line(".shared .align 16 .b8 ~objects[" +
                       std::to_string(SLUICE_PREEMPT_OBJECT_BYTES) + "];");
    std::vector<std::string> lines = base();
    lines.push_back("mov.u32 \t%~ma, 0;");
    for (std::size_t k = 0; k < count(); ++k)
      lines.push_back("st.shared.u32 \t" + at(k) + ", %~ma;");
    for (const std::string& line : lines) clone.start.line(line);
  }

  Finding note() {
    std::size_t k = 0;
    for (std::uint32_t i : facts().init) {
      const ptx::Statement& s = clone_.in.entry.statements[i];
      std::vector<std::string> lines;
      if (Finding f = address(s, lines)) return f;
      append(lines, base());
      lines.push_back("or.b32 \t%~ma, %~ma, 1;");
      lines.push_back(Clone::guard_of(s) + "st.shared.u32 \t" + at(k++) + ", %~ma;");
      behind(s, lines);
    }
    for (std::uint32_t i : facts().inval) {
      const ptx::Statement& s = clone_.in.entry.statements[i];
      std::vector<std::string> lines;
      if (Finding f = address(s, lines)) return f;
      append(lines, base());
      // Where the guard does not hold: 0, which stands where nothing is noted.
      lines.push_back("or.b32 \t%~ma, %~ma, 1;");
      lines.push_back("mov.u32 \t%~mc, 0;");
      lines.push_back(Clone::guard_of(s) + "mov.u32 \t%~mc, %~ma;");
      for (std::size_t n = 0; n < count(); ++n) {
        lines.push_back("ld.shared.u32 \t%~ma, " + at(n) + ";");
        lines.push_back("setp.eq.u32 \t%~mp, %~ma, %~mc;");
        lines.push_back("mov.u32 \t%~ma, 0;");
        lines.push_back("@%~mp st.shared.u32 \t" + at(n) + ", %~ma;");
      }
      behind(s, lines);
    }
    return {};
  }

  std::vector<std::string> release() const {
    std::vector<std::string> lines = base();
    lines.push_back("mov.u32 \t%~mc, 0;");
    for (std::size_t k = 0; k < count(); ++k) {
      lines.push_back("ld.shared.u32 \t%~ma, " + at(k) + ";");
      lines.push_back("setp.ne.u32 \t%~mp, %~ma, 0;");
      lines.push_back("and.pred \t%~mp, %~mp, %~lead;");
      lines.push_back("@%~mp mbarrier.inval.shared.b64 \t[%~ma+-1];");
      lines.push_back("@%~lead st.shared.u32 \t" + at(k) + ", %~mc;");
    }
    return lines;
  }

 private:
  const MemoryBarriers& facts() const { return clone_.in.facts.memory_barriers; }
  std::size_t count() const { return facts().init.size(); }
  bool dynamic() const { return !clone_.options.dynamic_shared.empty(); }
  static void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  void behind(const ptx::Statement& s, const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text.append("\n\t").append(clone_.name(line));
    clone_.edits.insert(s.range.end, std::move(text));
  }
  // %~mb: where the words stand, in dynamic shared memory; as in LoopHead::load_base().
  std::vector<std::string> base() const {
    if (!dynamic()) return {};
    return {"mov.u32 \t%~mb, %dynamic_smem_size;",
            "mov.u32 \t%~mc, " + std::string(clone_.options.dynamic_shared) + ";",
            "add.u32 \t%~mb, %~mb, %~mc;",
            "sub.u32 \t%~mb, %~mb, " + std::to_string(SLUICE_PREEMPT_DYNAMIC_BYTES - 15) + ";",
            "and.b32 \t%~mb, %~mb, -16;"};
  }
  std::string at(std::size_t k) const {
    const std::size_t offset = 4 * k;
    if (!dynamic()) return "[~objects+" + std::to_string(offset) + "]";
    return "[%~mb+" +
           std::to_string(SLUICE_PREEMPT_SHARED_BYTES + SLUICE_PREEMPT_COUNT_BYTES + offset) + "]";
  }
  // %~ma: the object's address in shared memory, from the statement's "[register+n]" or "[name+n]".
  Finding address(const ptx::Statement& s, std::vector<std::string>& lines) const {
    const Finding unknown{"mbarrier", "names an mbarrier object in an unusual way (line " +
                                          std::to_string(s.line) + ")"};
    if (s.operands.empty()) return unknown;
    std::string_view text = s.operands[0];
    if (text.size() < 3 || text.front() != '[' || text.back() != ']') return unknown;
    text = text.substr(1, text.size() - 2);
    std::size_t end = 0;
    const std::string_view base = ptx::next_identifier(text, end);
    if (base.empty() || text.find(base) != 0) return unknown;
    std::string_view offset = text.substr(base.size());
    while (!offset.empty() && (offset.front() == '+' || offset.front() == ' '))
      offset.remove_prefix(1);
    const std::string plus(offset.empty() ? "0" : offset);
    if (plus.find_first_not_of("-0123456789xXabcdefABCDEF") != plus.npos) return unknown;
    const bool shared =
        ptx::has_modifier(s.opcode, "shared") || ptx::has_modifier(s.opcode, "shared::cta");
    if (base.front() != '%') {
      if (!shared) return unknown;
      lines.push_back("mov.u32 \t%~ma, " + std::string(base) + ";");
    } else if (const std::uint32_t bits = ptx::register_bits(clone_.in.entry, base, s);
               bits == 32 && shared) {
      lines.push_back("mov.u32 \t%~ma, " + std::string(base) + ";");
    } else if (bits == 64) {
      lines.push_back((shared ? "mov.u64 \t%~mw, " : "cvta.to.shared.u64 \t%~mw, ") +
                      std::string(base) + ";");
      lines.push_back("cvt.u32.u64 \t%~ma, %~mw;");
    } else {
      return unknown;
    }
    lines.push_back("add.s32 \t%~ma, %~ma, " + plus + ";");
    return {};
  }

  Clone& clone_;
};

}  // namespace

Finding finish_copies(Clone& clone) {
  const KernelFacts& facts = clone.in.facts;
  auto& lines = clone.options.clean_up;
  // Copies into shared memory that nobody waited for: the original's block may end before them.
  if (facts.sync.cp_async) lines.push_back("cp.async.wait_all;");
  if (facts.memory_barriers.bulk) {
    // Of this thread, also those that it has not committed; and what the task did in shared memory
    // comes before what the next one has copied there.
    lines.push_back("cp.async.bulk.commit_group;");
    lines.push_back("cp.async.bulk.wait_group \t0;");
    lines.push_back("fence.proxy.async;");
  }
  if (!facts.memory_barriers.any) return {};
  Objects objects(clone);
  if (Finding f = objects.note()) return f;
  clone.options.release = objects.release();
  return {};
}

}  // namespace sluice::passes
