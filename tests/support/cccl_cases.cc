// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cccl_cases.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace sluice::testing {

namespace {

std::vector<std::string> names_with(const std::string& folder, const std::string& ending,
                                    bool keep_ending) {
  std::vector<std::string> names;
  if (!std::filesystem::is_directory(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path file = entry.path().filename();
    if (file.extension() == ending) names.push_back(keep_ending ? file : file.stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> cccl_names(const std::string& folder) {
  return names_with(folder, ".trace", false);
}

std::vector<std::string> cccl_modules(const std::string& folder) {
  return names_with(folder, ".ptx", true);
}

std::string cccl_file(const std::string& folder, const std::string& name) {
  std::string path = folder;
  path += '/';
  path += name;
  return path;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

suite::Trace load_cccl(const std::string& folder, const std::string& name) {
  suite::Trace trace = suite::parse_trace(read_file(cccl_file(folder, name + ".trace")));
  trace.work.ptx = read_file(cccl_file(folder, trace.module));
  return trace;
}

}  // namespace sluice::testing
