// SPDX-License-Identifier: Apache-2.0
#include "kernels/tool/commands.h"

#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "kernels/passes/rewrite.h"
#include "kernels/ptx/print.h"
#include "kernels/tool/assembler.h"

namespace sluice::tool {

namespace {

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

boost::json::object json_of(const std::string& file, const passes::KernelReport& k) {
  boost::json::array names;
  for (std::string_view pass : k.passes) names.emplace_back(pass);
  return {{"file", file},
          {"kernel", k.name},
          {"tier", passes::tier_name(k.tier)},
          {"evictable", k.evictable},
          {"reason", k.reason},
          {"code", k.code},
          {"passes", names},
          {"persistent", k.persistent},
          {"one_row", k.one_row},
          {"author_code", k.author_code},
          {"author_reason", k.author_reason}};
}

void add_cost(boost::json::object& line, const passes::KernelReport& k,
              const std::map<std::string, Resources>& used) {
  const auto original = used.find(k.name);
  const auto clone = used.find(k.name + SLUICE_CLONE_SUFFIX);
  if (original == used.end() || clone == used.end()) return;
  line["registers"] = original->second.registers;
  line["registers_added"] = static_cast<std::int64_t>(clone->second.registers) -
                            static_cast<std::int64_t>(original->second.registers);
  line["shared_added"] =
      static_cast<std::int64_t>(clone->second.shared_bytes) -
      static_cast<std::int64_t>(original->second.shared_bytes) +
      (k.slot == passes::SlotPlace::kDynamicEnd ? std::int64_t{SLUICE_PREEMPT_DYNAMIC_BYTES} : 0);
  line["spill_bytes_added"] = static_cast<std::int64_t>(clone->second.spill_bytes) -
                              static_cast<std::int64_t>(original->second.spill_bytes);
}

}  // namespace

Result<ptx::Module> load(const std::string& path) {
  auto text = read_file(path);
  if (!text) return std::move(text).error();
  auto module = ptx::Module::parse(std::move(*text));
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
  const auto rewritten = passes::rewrite_module(*module);
  return write_out(output, rewritten.text) ? 0 : complain(output + ": cannot write");
}

int report(const std::vector<std::string>& inputs, bool json, bool table,
           const std::string& assembler) {
  int status = 0;
  std::map<std::string, std::uint64_t> tiers, codes;
  std::uint64_t kernels = 0, evictable = 0, bound_to_grid = 0;
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
    const auto rewritten = passes::rewrite_module(*module);
    std::map<std::string, Resources> used;
    if (json && !assembler.empty() && !rewritten.kernels.empty())
      used = assemble(assembler, std::string(module->target()), rewritten.text);
    for (const auto& k : rewritten.kernels) {
      ++kernels;
      evictable += k.evictable;
      bound_to_grid += k.code == "cluster" || k.code == "cooperative" || k.code == "waits" ||
                       k.code == "device-launch";
      ++tiers[passes::tier_name(k.tier)];
      if (!k.code.empty()) ++codes[passes::tier_name(k.tier) + std::string(": ").append(k.code)];
      if (table) continue;
      if (json) {
        boost::json::object line = json_of(input, k);
        add_cost(line, k, used);
        std::cout << boost::json::serialize(line) << '\n';
        continue;
      }
      std::cout << input << ": " << k.name << ": " << passes::tier_name(k.tier);
      if (!k.reason.empty()) std::cout << ": " << k.reason;
      if (k.persistent) {
        std::cout << "; already persistent: it hands out its own work";
        if (!k.resumable)
          std::cout << ", so it should say where it can leave (<sluice/preempt.cuh>)";
      }
      if (!k.author_code.empty())
        std::cout << "; where its author lets it leave is not used: " << k.author_reason;
      std::cout << '\n';
    }
  }
  if (!table) return status;
  for (const auto& [tier, count] : tiers) std::cout << tier << '\t' << count << '\n';
  for (const auto& [code, count] : codes) std::cout << "  " << code << '\t' << count << '\n';
  std::cout << "kernels\t" << kernels << "\nevictable\t" << evictable
            << "\nneeding clusters, the whole grid or the host\t" << bound_to_grid << '\n';
  return status;
}

int print(const std::string& input, const std::string& output, bool statements) {
  auto module = load(input);
  if (!module) return complain(module.error().message);
  std::string text;
  if (statements) {
    for (const auto& f : module->functions())
      text.append(f.is_entry ? ".entry " : ".func ").append(f.name).append("\n") +=
          ptx::list_statements(f);
  } else {
    auto printed = ptx::print(*module);
    if (!printed) return complain(input + ": " + printed.error().message);
    text = std::move(*printed);
  }
  return write_out(output, text) ? 0 : complain(output + ": cannot write");
}

int print_after_each(const std::string& input, const std::string& output) {
  auto module = load(input);
  if (!module) return complain(module.error().message);
  std::string text;
  passes::RewriteOptions options;
  options.after_each = [&](std::string_view kernel, std::string_view pass, const std::string& clone,
                           const passes::Finding& given_up) {
    text.append("// ---- ").append(kernel).append(": ").append(pass);
    if (given_up) {
      text.append(": given up: ").append(given_up.text).append("\n");
    } else {
      text.append("\n").append(clone).append("\n");
    }
  };
  (void)passes::rewrite_module(*module, options);
  return write_out(output, text) ? 0 : complain(output + ": cannot write");
}

}  // namespace sluice::tool
