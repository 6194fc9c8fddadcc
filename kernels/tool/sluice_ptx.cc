// sluice-ptx: the rewriter as a tool. Reads PTX, says which kernels become evictable and why the
// others do not, and writes the rewritten module.
//
//   parse arguments -> read the file -> one of rewrite, report, print
//
// One thread, no state; exit status 1: a file could not be read or cut into statements, 2: usage.
#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <sstream>

#include "kernels/passes/rewrite.h"
#include "kernels/ptx/print.h"

namespace {

using sluice::Error;
using sluice::Result;

Result<std::string> read_file(const std::string& path) {
  std::stringstream contents;
  if (path == "-") {
    contents << std::cin.rdbuf();
    return contents.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error::from_errno(path);
  contents << file.rdbuf();
  if (file.bad()) return Error::from_errno(path);
  return contents.str();
}

Result<sluice::ptx::Module> load(const std::string& path) {
  auto text = read_file(path);
  if (!text) return std::move(text).error();
  auto module = sluice::ptx::Module::parse(std::move(*text));
  if (!module) return std::move(module).error().with_context(path);
  return module;
}

bool write_out(const std::string& path, const std::string& text) {
  if (path.empty() || path == "-") {
    std::cout << text << std::flush;
    return static_cast<bool>(std::cout);
  }
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  return static_cast<bool>(file);
}

int complain(const std::string& message) {
  std::cerr << "sluice-ptx: " << message << '\n';
  return 1;
}

int rewrite(const std::string& input, const std::string& output) {
  auto module = load(input);
  if (!module) return complain(module.error().message);
  const auto rewritten = sluice::passes::rewrite_module(*module);
  return write_out(output, rewritten.text) ? 0 : complain(output + ": cannot write");
}

int report(const std::vector<std::string>& inputs, bool json) {
  int status = 0;
  for (const std::string& input : inputs) {
    auto module = load(input);
    if (!module) {
      status = 1;
      if (json)
        std::cout << boost::json::serialize(
                         boost::json::object{{"file", input}, {"error", module.error().message}})
                  << '\n';
      else
        complain(module.error().message);
      continue;
    }
    const auto rewritten = sluice::passes::rewrite_module(*module);
    for (const auto& k : rewritten.kernels) {
      const char* tier = sluice::passes::tier_name(k.tier);
      if (json) {
        std::cout << boost::json::serialize(boost::json::object{{"file", input},
                                                                {"kernel", k.name},
                                                                {"tier", tier},
                                                                {"evictable", k.evictable},
                                                                {"reason", k.reason}})
                  << '\n';
      } else {
        std::cout << input << ": " << k.name << ": " << tier;
        if (!k.reason.empty()) std::cout << ": " << k.reason;
        std::cout << '\n';
      }
    }
  }
  return status;
}

int print(const std::string& input, const std::string& output, bool statements) {
  auto module = load(input);
  if (!module) return complain(module.error().message);
  std::string text;
  if (statements) {
    for (const auto& f : module->functions())
      text.append(f.is_entry ? ".entry " : ".func ").append(f.name).append("\n") +=
          sluice::ptx::list_statements(f);
  } else {
    auto printed = sluice::ptx::print(*module);
    if (!printed) return complain(input + ": " + printed.error().message);
    text = std::move(*printed);
  }
  return write_out(output, text) ? 0 : complain(output + ": cannot write");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Makes kernels in PTX evictable, and says which and why"};
  app.require_subcommand(1);
  std::string input, output;
  std::vector<std::string> inputs;
  bool json = false, statements = false;

  auto* rewrite_command =
      app.add_subcommand("rewrite", "Write the module with an evictable clone of each kernel");
  rewrite_command->add_option("file", input, "PTX file, - for standard input")->required();
  rewrite_command->add_option("-o,--output", output, "Where to write; standard output if absent");

  auto* report_command =
      app.add_subcommand("report", "Say for every kernel how it is evicted, or why it is not");
  report_command->add_option("files", inputs, "PTX files")->required();
  report_command->add_flag("--json", json, "One JSON object per line and kernel");

  auto* print_command = app.add_subcommand("print", "Cut the module into statements and print it");
  print_command->add_option("file", input, "PTX file, - for standard input")->required();
  print_command->add_option("-o,--output", output, "Where to write; standard output if absent");
  print_command->add_flag("--statements", statements, "List the statements instead");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (*rewrite_command) return rewrite(input, output);
  if (*report_command) return report(inputs, json);
  return print(input, output, statements);
}
