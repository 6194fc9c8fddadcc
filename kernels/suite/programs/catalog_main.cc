// SPDX-License-Identifier: Apache-2.0
// sluice-suite-catalog: plays benchmarks of the catalogue, or recorded traces, on the first CUDA
// device, one after the other, and says of each whether its results are right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/suite/catalog/trace.h"
#include "kernels/suite/programs/driver.h"
#include "kernels/suite/programs/play_driver.h"

namespace {

using namespace sluice::suite;

constexpr const char* kUsage =
    "usage: sluice-suite-catalog [OPTION]... [NAME|FILE.trace]...\n"
    "Plays benchmarks of the suite (all, if none is named) and recorded traces on the CUDA "
    "device;\n"
    "a line per benchmark. The PTX of a trace has to be beside it.\n"
    "  --list          print the benchmarks' names and end\n"
    "  --scale F       F times the test size, in work (default 1)\n"
    "  --gpu-scale     the scale at which a launch takes 100 us or more on an H200\n"
    "  --repeat N      play each N times (default 1)\n"
    "  --seed X        of the input data (default 1)\n"
    "  --json          one JSON object per line\n"
    "Exit: 0 all right, 1 a wrong result, 2 usage, 3 a CUDA call failed.\n";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Request {
  CaseOptions options;
  bool gpu_scale = false, json = false;
  std::uint64_t repeat = 1;
  std::vector<std::string> names;
};

// As JSON wants it; names and messages here hold nothing but printable text and line feeds.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + "\"";
}

Case case_named(const std::string& name, const Request& request, double& scale) {
  if (name.ends_with(".trace")) {
    Trace trace = parse_trace(read_file(name));
    trace.work.ptx = read_file(std::filesystem::path(name).parent_path() / trace.module);
    return std::move(trace.work);
  }
  const Row* row = find_row(name);
  if (row == nullptr) throw std::runtime_error("no benchmark " + name + " (see --list)");
  CaseOptions options = request.options;
  if (request.gpu_scale) options.scale = row->gpu_scale;
  scale = options.scale;
  return row->make(options);
}

// Whether everything was right.
bool play_all(const Request& request) {
  const Context context;
  bool right = true;
  for (const std::string& name : request.names) {
    double scale = 1;
    const Case work = case_named(name, request, scale);
    const DriverPlay play = play_on_driver(work, request.repeat);
    right = right && play.wrong.empty();
    if (request.json)
      std::printf(
          "{\"name\": %s, \"scale\": %g, \"right\": %s, \"launches\": %llu, \"longest_us\": %.3f, "
          "\"longest\": %s, \"wrong\": %s}\n",
          quoted(work.name).c_str(), scale, play.wrong.empty() ? "true" : "false",
          static_cast<unsigned long long>(play.launches), play.longest_us,
          quoted(play.longest).c_str(), quoted(play.wrong).c_str());
    else
      std::printf("%-40s %s  %llu launches, longest %.1f us %s\n", work.name.c_str(),
                  play.wrong.empty() ? "right" : ("WRONG: " + play.wrong).c_str(),
                  static_cast<unsigned long long>(play.launches), play.longest_us,
                  play.longest.c_str());
    std::fflush(stdout);
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  Request request;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 == argc) {
        std::fprintf(stderr, "%s needs a value\n", word.c_str());
        std::exit(2);
      }
      return argv[++i];
    };
    if (word == "--list") {
      for (const Row& row : catalog()) std::puts(row.name);
      return 0;
    }
    if (word == "--help") return std::fputs(kUsage, stdout), 0;
    if (word == "--scale")
      request.options.scale = std::atof(value());
    else if (word == "--seed")
      request.options.seed = std::strtoull(value(), nullptr, 10);
    else if (word == "--repeat")
      request.repeat = std::strtoull(value(), nullptr, 10);
    else if (word == "--gpu-scale")
      request.gpu_scale = true;
    else if (word == "--json")
      request.json = true;
    else if (word.starts_with("-"))
      return std::fputs(kUsage, stderr), 2;
    else
      request.names.push_back(word);
  }
  if (!(request.options.scale > 0) || request.repeat == 0) return std::fputs(kUsage, stderr), 2;
  if (request.names.empty())
    for (const Row& row : catalog()) request.names.push_back(row.name);
  try {
    return play_all(request) ? 0 : 1;
  } catch (const DriverError& error) {
    std::fprintf(stderr, "sluice-suite-catalog: %s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice-suite-catalog: %s\n", error.what());
    return 2;
  }
}
