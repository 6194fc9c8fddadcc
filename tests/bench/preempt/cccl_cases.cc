// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/preempt/cccl_cases.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/suite/catalog/trace.h"
#include "tests/bench/preempt/gpu.h"

namespace sluice::bench {

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) die("cannot read " + path.string());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Word i: random & mask, or i * multiplier / divisor (tests/cccl/README.md).
void fill(std::vector<std::byte>& bytes, const std::string& how) {
  std::stringstream words(how);
  std::string kind;
  std::uint64_t a = 0, b = 1;
  words >> kind >> a;
  if (kind == "ramp") words >> b;
  if (!words || b == 0 || (kind != "noise" && kind != "ramp")) die("contents: " + how);
  std::uint64_t state = 0x9e3779b97f4a7c15u + a;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    std::uint32_t word;
    if (kind == "noise") {
      state = state * 6364136223846793005u + 1442695040888963407u;
      word = static_cast<std::uint32_t>(state >> 32) & static_cast<std::uint32_t>(a);
    } else {
      word = static_cast<std::uint32_t>(i / 4 * a / b);
    }
    std::memcpy(bytes.data() + i, &word, 4);
  }
}

suite::Case load(const std::filesystem::path& path) {
  // The lines of a replay's own go out before the rest is read.
  std::stringstream lines(read_file(path));
  std::string trace;
  std::vector<std::pair<std::size_t, std::string>> contents;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("contents ")) {
      trace += line + "\n";
      continue;
    }
    std::size_t end = 0;
    const std::size_t buffer = std::stoul(line.substr(9), &end);
    contents.emplace_back(buffer, line.substr(9 + end));
  }
  suite::Trace parsed = suite::parse_trace(trace, std::uint64_t{8} << 30);
  for (const auto& [buffer, how] : contents) fill(parsed.work.buffers.at(buffer).initial, how);
  parsed.work.ptx = read_file(path.parent_path() / parsed.module);
  return std::move(parsed.work);
}

}  // namespace

std::vector<CaseMaker> cccl_cases(const std::string& folder) {
  std::vector<std::filesystem::path> traces;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".trace") traces.push_back(entry.path());
  if (traces.empty()) die("no traces in " + folder);
  std::sort(traces.begin(), traces.end());
  std::vector<CaseMaker> cases;
  for (const auto& path : traces)
    cases.push_back({"cccl/" + path.stem().string(), [path] { return load(path); }});
  return cases;
}

}  // namespace sluice::bench
