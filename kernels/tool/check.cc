// SPDX-License-Identifier: Apache-2.0
// sluice-ptx check: every kernel of a module in its original form and as a clone that is evicted at
// random, on the interpreter, from the same memory; then the memories are compared.
#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <utility>

#include "kernels/tool/commands.h"
#include "kernels/tool/eviction_run.h"

namespace sluice::tool {

namespace {

constexpr std::uint64_t kMostBufferBytes = std::uint64_t{1} << 30;

// One parameter: what --args says, or what its size suggests.
//   8 bytes: a buffer of numbers; 4 bytes: the number of threads of the grid; structures, which are
//   mostly arrays with their sizes: a buffer and then the number of threads; others: small numbers
class Arguments {
 public:
  Arguments(const CheckOptions& options, const KernelLaunch& launch, EvictionRun& run)
      : options_(options), launch_(launch), run_(run) {}

  Result<std::vector<std::byte>> make(const exec::EntryInfo& entry) {
    std::vector<std::byte> block(entry.param_bytes);
    std::mt19937_64 random(options_.seed);
    for (std::size_t k = 0; k < entry.params.size(); ++k) {
      const exec::ParamInfo& p = entry.params[k];
      std::string word = k < options_.arguments.size() ? options_.arguments[k] : "auto";
      if (word == "auto" && p.bytes >= 16 && p.bytes % 8 == 0) {
        const std::uint64_t address = buffer("buffer", options_.buffer_bytes, random),
                            n = threads_of_launch();
        std::memcpy(block.data() + p.offset, &address, 8);
        for (std::uint32_t at = 8; at < p.bytes; at += 8)
          std::memcpy(block.data() + p.offset + at, &n, 8);
        continue;
      }
      if (word == "auto")
        word = p.bytes == 8 ? "buffer" : p.bytes == 4 ? std::to_string(threads_of_launch()) : "1";
      if (auto set = put(word, block.data() + p.offset, p.bytes, random); !set)
        return Error{0, "argument " + std::to_string(k + 1) + ": " + set.error().message};
    }
    return block;
  }

 private:
  std::uint64_t threads_of_launch() const {
    const auto volume = [](const exec::Dim3& d) { return std::uint64_t{d.x} * d.y * d.z; };
    return volume(launch_.grid) * volume(launch_.block);
  }

  // A parameter; "a+b+c": the members of a structure, each where its size aligns it.
  Result<void> put(const std::string& word, std::byte* to, std::uint32_t bytes,
                   std::mt19937_64& random) {
    if (word.find('+') == word.npos || word.starts_with("file:"))
      return put_one(word, to, bytes, random);
    std::uint32_t at = 0;
    std::istringstream members(word);
    for (std::string member; std::getline(members, member, '+');) {
      const std::uint32_t size = size_of(&member);
      at = (at + size - 1) / size * size;
      if (at + size > bytes) return Error{0, "more members than its " + std::to_string(bytes)};
      if (auto set = put_one(member, to + at, size, random); !set) return set;
      at += size;
    }
    return {};
  }
  // Of a structure's member, by its last letter, which goes.
  static std::uint32_t size_of(std::string* member) {
    if (member->empty() || !std::isdigit(static_cast<unsigned char>(member->front())))
      return !member->empty() && member->front() == '-' ? 4 : 8;
    for (const auto& [letter, size] : {std::pair{'c', 1u}, {'s', 2u}, {'l', 8u}}) {
      if (member->back() != letter || member->starts_with("0x")) continue;
      member->pop_back();
      return size;
    }
    return 4;
  }

  Result<void> put_one(const std::string& word, std::byte* to, std::uint32_t bytes,
                       std::mt19937_64& random) {
    const std::string kind = word.substr(0, word.find(':'));
    if (kind != "buffer" && kind != "zeros" && kind != "floats" && kind != "file")
      return number(word, to, bytes);
    if (bytes != 8) return Error{0, "there is no room for a pointer"};
    const std::string rest = word.size() > kind.size() ? word.substr(kind.size() + 1) : "";
    std::uint64_t address = 0;
    if (kind == "file") {
      std::ifstream file(rest, std::ios::binary);
      const std::string contents{std::istreambuf_iterator<char>(file), {}};
      if (contents.empty()) return Error{0, rest + " cannot be read, or is empty"};
      const std::size_t b = run_.add_buffer(contents.size());
      std::memcpy(run_.data(b), contents.data(), contents.size());
      address = run_.address(b);
    } else {
      char* end = nullptr;
      const std::uint64_t size =
          rest.empty() ? options_.buffer_bytes : std::strtoull(rest.c_str(), &end, 0);
      if ((end != nullptr && *end != '\0') || size == 0 || size > kMostBufferBytes)
        return Error{0, "not a size: " + rest};
      address = buffer(kind, size, random);
    }
    std::memcpy(to, &address, 8);
    return {};
  }

  std::uint64_t buffer(const std::string& kind, std::uint64_t bytes, std::mt19937_64& random) {
    const std::size_t b = run_.add_buffer(bytes);
    if (kind == "buffer") {
      // Small integers: they serve as data and as indices.
      for (std::size_t i = 0; i + 4 <= run_.bytes(b); i += 4) {
        const auto value = static_cast<std::uint32_t>(random() % 64);
        std::memcpy(run_.data(b) + i, &value, 4);
      }
    } else if (kind == "floats") {
      for (std::size_t i = 0; i + 4 <= run_.bytes(b); i += 4) {
        const float value = static_cast<float>(random() % 2000) / 1000 - 1;
        std::memcpy(run_.data(b) + i, &value, 4);
      }
    }
    return run_.address(b);
  }

  static Result<void> number(const std::string& word, std::byte* to, std::uint32_t bytes) {
    char* end = nullptr;
    if (word.find_first_of(".") != word.npos) {
      const double value = std::strtod(word.c_str(), &end);
      const float narrow = static_cast<float>(value);
      if (*end != '\0' || (bytes != 4 && bytes != 8)) return Error{0, "not an argument: " + word};
      if (bytes == 4)
        std::memcpy(to, &narrow, 4);
      else
        std::memcpy(to, &value, 8);
      return {};
    }
    const long long value = std::strtoll(word.c_str(), &end, 0);
    if (word.empty() || *end != '\0') return Error{0, "not an argument: " + word};
    std::memcpy(to, &value, std::min<std::size_t>(bytes, 8));
    return {};
  }

  const CheckOptions& options_;
  const KernelLaunch& launch_;
  EvictionRun& run_;
};

// Orders of blocks in which the original is tried before a difference counts.
constexpr std::uint64_t kOrders = 32;

struct Verdict {
  bool checked = false;  // it could be run
  std::string wrong;     // empty: the clone does what the original does
  std::uint32_t evictions = 0;
};

Verdict failed(std::string why) { return {.checked = false, .wrong = std::move(why)}; }

// How the kernel is launched, without its parameters.
KernelLaunch launch_of(const CheckOptions& options, const passes::KernelReport& report,
                       const exec::EntryInfo& entry) {
  KernelLaunch launch;
  launch.kernel = report.name;
  launch.grid = {options.grid[0], options.grid[1], options.grid[2]};
  launch.block = {options.block[0], options.block[1], options.block[2]};
  if (report.uses_dynamic_shared || options.shared_given)
    launch.dynamic_shared = options.dynamic_shared;
  if (entry.required_block[0] != 0)
    launch.block = {entry.required_block[0], entry.required_block[1], entry.required_block[2]};
  // Kernels that say how many threads they are made for are mostly wrong with fewer.
  else if (entry.max_threads != 0 && !options.block_given)
    launch.block = {entry.max_threads, 1, 1};
  return launch;
}

// A clone against its original, in runs with other random evictions each.
class Comparison {
 public:
  Comparison(const CheckOptions& options, EvictionRun& run, const KernelLaunch& launch)
      : options_(options), run_(run), launch_(launch), before_(run.contents()) {}

  Verdict compare() {
    auto original = run_.run_original(launch_, options_.seed);
    if (!original)
      return failed("the original cannot be run with these arguments: " + original.error().message);
    expected_ = run_.contents();
    Verdict v{.checked = true};
    for (std::uint32_t round = 0; round < options_.rounds; ++round) {
      run_.restore(before_);
      EvictionOptions evict;
      evict.seed = options_.seed * 1000 + round;
      evict.most_evictions = options_.evictions;
      evict.expected_steps = original->steps;
      auto clone = run_.run_clone(launch_, evict);
      if (clone) v.evictions += clone->evictions;
      if (clone && !v.checked) continue;  // racing: only whether the clone can be run
      std::string wrong =
          clone ? first_difference(expected_, run_.contents()) : clone.error().message;
      if (wrong.empty()) continue;
      if (v.checked && !depends_on_order()) {
        v.wrong = clone ? wrong + " (" + clone->setting + ")" : wrong;
        return v;
      }
      v.checked = false;
      v.wrong = "not compared: the original's result depends on the order of its blocks";
      if (!clone) break;
    }
    return v;
  }

 private:
  // Kernels whose blocks race leave something else with each order of their blocks.
  bool depends_on_order() {
    for (std::uint64_t order = 1; order <= kOrders; ++order) {
      run_.restore(before_);
      auto again = run_.run_original(launch_, options_.seed + order);
      if (!again || !first_difference(expected_, run_.contents()).empty()) return true;
    }
    return false;
  }

  const CheckOptions& options_;
  EvictionRun& run_;
  const KernelLaunch& launch_;
  const std::vector<std::vector<std::byte>> before_;
  std::vector<std::vector<std::byte>> expected_;
};

Verdict check_kernel(const CheckOptions& options, const std::string& text,
                     const passes::KernelReport& report) {
  auto run = EvictionRun::load(text);
  if (!run) return failed("cannot be run here: " + run.error().message);
  const exec::EntryInfo& entry = *(*run)->program().find_entry(report.name);
  KernelLaunch launch = launch_of(options, report, entry);
  auto params = Arguments(options, launch, **run).make(entry);
  if (!params) return failed(params.error().message);
  launch.params = std::move(*params);
  return Comparison(options, **run, launch).compare();
}

}  // namespace

int check(const CheckOptions& options) {
  auto module = load(options.input);
  if (!module) return complain(module.error().message);
  const auto rewritten = passes::rewrite_module(*module);
  int status = 0;
  bool found = options.kernel.empty();
  for (const passes::KernelReport& k : rewritten.kernels) {
    if (!options.kernel.empty() && k.name != options.kernel) continue;
    found = true;
    std::string verdict, why;
    std::uint32_t evictions = 0;
    if (!k.evictable) {
      verdict = "opaque";
      why = k.reason;
    } else {
      const Verdict v = check_kernel(options, module->text(), k);
      evictions = v.evictions;
      why = v.wrong;
      verdict = v.wrong.empty() ? "same" : v.checked ? "different" : "not checked";
      if (verdict == "different") status = 1;
    }
    if (options.json) {
      std::cout << boost::json::serialize(boost::json::object{{"file", options.input},
                                                              {"kernel", k.name},
                                                              {"tier", passes::tier_name(k.tier)},
                                                              {"verdict", verdict},
                                                              {"reason", why},
                                                              {"rounds", options.rounds},
                                                              {"evictions", evictions}})
                << '\n';
    } else {
      std::cout << k.name << ": " << passes::tier_name(k.tier) << ": " << verdict;
      if (evictions != 0) std::cout << " after " << evictions << " evictions";
      if (!why.empty()) std::cout << ": " << why;
      std::cout << '\n';
    }
  }
  return found ? status : complain(options.input + ": has no kernel " + options.kernel);
}

}  // namespace sluice::tool
