// SPDX-License-Identifier: Apache-2.0
// launch_overhead: what the channel adds to a launch and to an empty call.
//
// Loads two CUDA driver libraries side by side into one process, each with its own symbols: the
// one named by --direct (libsluice-softcuda.so, or NVIDIA's library), called as a program on the
// host would, and the guest's libcuda.so.1 named by --channel, whose worker runs the same library.
// Rounds alternate between the two, so that whatever else the machine does meets both. The kernel
// is empty: what is measured is the way there and back. One thread calls.
//
// Measured, per library, in microseconds:
//   launch_call     cuLaunchKernel alone, the queue kept short
//   launch_and_wait cuLaunchKernel until cuStreamSynchronize has returned
//   back_to_back    --launches launches and one wait, per launch
//   mem_get_info    cuMemGetInfo: nothing but a question that the worker must answer
//   stream_query    cuStreamQuery of an idle stream
// One JSON object on stdout. `added` is channel minus direct, by percentile. Exit: 0; 1 if
// --require is given and a goal of docs/notes/2026-11-22-benchmarks.md is not met; 2 usage; 3 a
// call failed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/suite/empty.ptx.h"
#include "tests/bench/program_alone/driver_library.h"

namespace sluice::bench {
namespace {

// Figures wanted of the local channel while nobody else is busy and both sides poll.
constexpr double kMaxAddedLaunchUs = 5;
constexpr double kMaxRoundTripUs = 3;

struct Settings {
  std::string direct, channel, samples;
  int rounds = 20;     // per library
  int launches = 500;  // samples per round and measurement
  bool require = false;
};

// Its kernel is the empty one.
class Driver : public DriverLibrary {
 public:
  Driver(std::string label_of_it, const std::string& path)
      : DriverLibrary(std::move(label_of_it), path, suite::kEmptyPtx) {
    load(query_, "cuStreamQuery");
  }
  void query() { check(query_(stream_), "cuStreamQuery"); }

 private:
  decltype(&::cuStreamQuery) query_;
};

// Launches that may be queued while calls are timed: with more, a call would wait for the GPU.
constexpr int kShortQueue = 8;

void round(Driver& driver, const Settings& settings, Samples& samples) {
  // The round before was the other library's: warm caches, branch predictors and pollers first.
  for (int i = 0; i < settings.launches / 5 + 1; ++i) {
    driver.launch();
    driver.wait();
  }
  const std::string& label = driver.label;
  const auto note = [&](const char* what, double us) { samples[what][label].push_back(us); };

  for (int i = 0; i < settings.launches; ++i) {
    const double begin = now_us();
    driver.launch();
    driver.wait();
    note("launch_and_wait", now_us() - begin);
  }
  for (int i = 0; i < settings.launches; ++i) {
    const double begin = now_us();
    driver.launch();
    note("launch_call", now_us() - begin);
    if (i % kShortQueue == kShortQueue - 1) driver.wait();
  }
  driver.wait();
  const double begin = now_us();
  for (int i = 0; i < settings.launches; ++i) driver.launch();
  driver.wait();
  note("back_to_back", (now_us() - begin) / settings.launches);
  for (int i = 0; i < settings.launches; ++i) {
    const double before = now_us();
    driver.mem_info();
    note("mem_get_info", now_us() - before);
  }
  for (int i = 0; i < settings.launches; ++i) {
    const double before = now_us();
    driver.query();
    note("stream_query", now_us() - before);
  }
}

double percentile(std::vector<double>& values, double share) {
  const auto at = std::min(values.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

struct Summary {
  double p10, p50, p90, p99;
};

Summary summarise(std::vector<double>& values) {
  return {percentile(values, 0.10), percentile(values, 0.50), percentile(values, 0.90),
          percentile(values, 0.99)};
}

void print(const char* key, const Summary& s) {
  std::printf("\"%s\": {\"p10\": %.3f, \"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f}", key, s.p10,
              s.p50, s.p90, s.p99);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

void write_samples(const std::string& path, const Samples& samples) {
  FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw std::runtime_error(path + ": " + std::strerror(errno));
  std::fputs("measurement,library,us\n", file);
  for (const auto& [what, by_library] : samples) {
    for (const auto& [library, values] : by_library) {
      for (const double us : values) {
        std::fprintf(file, "%s,%s,%.3f\n", what.c_str(), library.c_str(), us);
      }
    }
  }
  if (std::fclose(file) != 0) throw std::runtime_error(path + ": " + std::strerror(errno));
}

int run(const Settings& settings) {
  std::vector<Driver> drivers;
  drivers.reserve(2);
  if (!settings.direct.empty()) drivers.emplace_back("direct", settings.direct);
  if (!settings.channel.empty()) drivers.emplace_back("channel", settings.channel);
  Samples samples;
  for (int i = 0; i < settings.rounds; ++i) {
    for (Driver& driver : drivers) round(driver, settings, samples);
  }

  bool met = true;
  std::printf("{\"benchmark\": \"launch_overhead\", \"rounds\": %d, \"launches_per_round\": %d",
              settings.rounds, settings.launches);
  for (const Driver& driver : drivers) {
    std::printf(", %s: %s", quoted(driver.label + "_device").c_str(),
                quoted(driver.device).c_str());
  }
  for (auto& [what, by_library] : samples) {
    std::printf(",\n \"%s_us\": {", what.c_str());
    std::map<std::string, Summary> summaries;
    for (auto& [library, values] : by_library) {
      summaries[library] = summarise(values);
      if (summaries.size() > 1) std::printf(", ");
      print(library.c_str(), summaries[library]);
    }
    if (summaries.size() == 2) {
      const Summary &c = summaries["channel"], &d = summaries["direct"];
      std::printf(", ");
      print("added", {c.p10 - d.p10, c.p50 - d.p50, c.p90 - d.p90, c.p99 - d.p99});
      if (what == "launch_and_wait" || what == "back_to_back") {
        met = met && c.p50 - d.p50 <= kMaxAddedLaunchUs;
      }
    }
    if (what == "mem_get_info" && summaries.contains("channel")) {
      met = met && summaries["channel"].p50 <= kMaxRoundTripUs;
    }
    std::printf("}");
  }
  std::printf(
      ",\n \"wanted\": {\"added_launch_us\": %.1f, \"round_trip_us\": %.1f}, \"met\": %s}\n",
      kMaxAddedLaunchUs, kMaxRoundTripUs,
      drivers.size() < 2 ? "null"
      : met              ? "true"
                         : "false");
  if (!settings.samples.empty()) write_samples(settings.samples, samples);
  return settings.require && !met ? 1 : 0;
}

int usage() {
  std::fputs(
      "usage: launch_overhead [--direct LIBRARY] [--channel LIBRARY] [--rounds N]\n"
      "                       [--launches N] [--samples FILE.csv] [--require]\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace sluice::bench

using namespace sluice::bench;

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--require") {
      settings.require = true;
      continue;
    }
    if (i + 1 == argc) return usage();
    const char* value = argv[++i];
    if (option == "--direct")
      settings.direct = value;
    else if (option == "--channel")
      settings.channel = value;
    else if (option == "--samples")
      settings.samples = value;
    else if (option == "--rounds")
      settings.rounds = std::atoi(value);
    else if (option == "--launches")
      settings.launches = std::atoi(value);
    else
      return usage();
  }
  if ((settings.direct.empty() && settings.channel.empty()) || settings.rounds < 1 ||
      settings.launches < 1) {
    return usage();
  }
  try {
    return run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launch_overhead: %s\n", error.what());
    return 3;
  }
}
