// SPDX-License-Identifier: Apache-2.0
// sluice-ptx: the rewriter as a tool. Reads PTX, says which kernels become evictable and why the
// others do not, writes the rewritten module, and tries it out.
//
//   parse arguments -> one of rewrite, report, print, check (commands.h)
//
// One thread, no state; exit status 1: a file could not be read or cut into statements, or a check
// found a difference; 2: usage. The manual page is sluice-ptx.1, beside this file.
#include <CLI/CLI.hpp>

#include "kernels/tool/assembler.h"
#include "kernels/tool/commands.h"
#include "mediator/base/parse_commands.h"

namespace sluice::tool {
namespace {

// The command line: what was chosen, and what it was given.
struct CommandLine {
  CLI::App app{"Makes kernels in PTX evictable, says which and why, and tries them out"};
  CLI::App *rewrite_command, *report_command, *print_command, *check_command;
  CLI::Option *block_option, *shared_option;

  std::string input, output, assembler = "auto";
  std::vector<std::string> inputs;
  bool json = false, table = false, statements = false, after_each = false;
  CheckOptions check;
  std::vector<std::uint32_t> grid{13}, block{64};

  CommandLine() {
    app.require_subcommand(1);
    rewrite_command =
        app.add_subcommand("rewrite", "Write the module with an evictable clone of each kernel");
    report_command =
        app.add_subcommand("report", "Say for every kernel how it is evicted, or why it is not");
    print_command = app.add_subcommand("print", "Cut the module into statements and print it");
    check_command = app.add_subcommand(
        "check", "Run originals and clones, evicted at random, on the software GPU and compare");
    add_files();
    add_check();
  }

  void add_files() {
    rewrite_command->add_option("file", input, "PTX file, - for standard input")->required();
    rewrite_command->add_option("-o,--output", output, "Where to write; standard output if absent");
    report_command->add_option("files", inputs, "PTX files")->required();
    report_command->add_flag("--json", json, "One JSON object per line and kernel");
    report_command->add_flag("--table", table, "Count kernels by tier and reason instead");
    report_command->add_option(
        "--ptxas", assembler,
        "Assembler that tells registers and shared memory added (with --json); "
        "none: do without");
    print_command->add_option("file", input, "PTX file, - for standard input")->required();
    print_command->add_option("-o,--output", output, "Where to write; standard output if absent");
    print_command->add_flag("--statements", statements, "List the statements instead");
    print_command->add_flag("--after-each", after_each,
                            "Print each kernel's clone after each pass instead");
  }

  void add_check() {
    CLI::App& c = *check_command;
    c.add_option("file", check.input, "PTX file, - for standard input")->required();
    c.add_option("--kernel", check.kernel, "Only this kernel");
    c.add_option("--grid", grid, "Blocks: X[,Y[,Z]]")->delimiter(',')->expected(1, 3);
    block_option = c.add_option("--block", block, "Threads of a block: X[,Y[,Z]]")
                       ->delimiter(',')
                       ->expected(1, 3);
    c.add_option("--args", check.arguments,
                 "One word per parameter: a number, buffer[:BYTES], zeros[:BYTES], "
                 "floats[:BYTES], file:PATH, auto, or a structure's members joined by +")
        ->delimiter(',');
    c.add_option("--buffer-bytes", check.buffer_bytes, "Size of each buffer")
        ->check(CLI::Range(std::uint64_t{16}, std::uint64_t{1} << 30));
    shared_option = c.add_option("--shared", check.dynamic_shared,
                                 "Bytes of dynamic shared memory; not given: 1024, for kernels "
                                 "that name it");
    c.add_option("--seed", check.seed, "Everything random follows from it");
    c.add_option("--rounds", check.rounds, "Runs of each clone");
    c.add_option("--evictions", check.evictions, "At most so many in each run");
    c.add_flag("--json", check.json, "One JSON object per line and kernel");
  }

  // Throws what CLI11 throws.
  void parse(int argc, char** argv) {
    parse_commands(app, argc, argv);
    check.block_given = block_option->count() != 0;
    check.shared_given = shared_option->count() != 0;
    for (std::size_t d = 0; d < 3; ++d) {
      check.grid[d] = d < grid.size() ? grid[d] : 1;
      check.block[d] = d < block.size() ? block[d] : 1;
      if (check.grid[d] == 0 || check.block[d] == 0)
        throw CLI::ValidationError("--grid and --block", "must not be 0");
    }
  }

  int run() {
    if (*rewrite_command) return rewrite(input, output);
    if (*report_command) {
      if (assembler == "auto") assembler = find_assembler();
      if (assembler == "none") assembler.clear();
      return report(inputs, json, table, assembler);
    }
    if (*check_command) return tool::check(check);
    return after_each ? print_after_each(input, output) : print(input, output, statements);
  }
};

}  // namespace
}  // namespace sluice::tool

int main(int argc, char** argv) {
  sluice::tool::CommandLine line;
  try {
    line.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return line.app.exit(e) == 0 ? 0 : 2;
  }
  return line.run();
}
