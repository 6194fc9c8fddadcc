// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/workloads/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

namespace sluice::suite {

namespace {

std::uint64_t parse_number(std::string_view option, std::string_view text, std::uint64_t min,
                           std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    throw UsageError(std::string(option) + " takes a number from " + std::to_string(min) + " to " +
                     std::to_string(max) + ", not '" + std::string(text) + "'");
  }
  return value;
}

double parse_positive(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e9) {
    throw UsageError(std::string(option) + " takes a number above 0, not '" + std::string(text) +
                     "'");
  }
  return value;
}

// What an option without a value sets; null: it is none of them.
bool* flag_of(Options& options, std::string_view option) {
  if (option == "--pageable") return &options.pageable;
  if (option == "--json") return &options.json;
  if (option == "--progress") return &options.progress;
  if (option == "--help") return &options.help;
  return nullptr;
}

}  // namespace

Options parse_options(std::span<const char* const> arguments) {
  constexpr std::uint64_t kAny = UINT64_MAX;
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view option = arguments[i];
    std::optional<std::string_view> value;
    if (const auto equals = option.find('='); equals != std::string_view::npos) {
      value = option.substr(equals + 1);
      option = option.substr(0, equals);
    }
    const auto take = [&]() -> std::string_view {
      if (value) return *std::exchange(value, std::nullopt);
      if (i + 1 == arguments.size()) throw UsageError(std::string(option) + " needs a value");
      return arguments[++i];
    };
    const auto number = [&](std::uint64_t min, std::uint64_t max) {
      return parse_number(option, take(), min, max);
    };
    if (option == "--size")
      options.size = number(1, kAny);
    else if (option == "--inner")
      options.inner = number(1, kAny);
    else if (option == "--launches")
      options.launches = number(1, kAny);
    else if (option == "--seconds")
      options.seconds = parse_positive(option, take());
    else if (option == "--scale")
      options.scale = parse_positive(option, take());
    else if (option == "--depth")
      options.depth = number(1, kMaxDepth);
    else if (option == "--streams")
      options.streams = number(1, kMaxStreams);
    else if (option == "--chain")
      options.chain = number(1, kMaxChain);
    else if (option == "--pause-ms")
      options.pause_ms = number(0, kMaxPauseMs);
    else if (option == "--seed")
      options.seed = number(0, kAny);
    else if (bool* flag = flag_of(options, option))
      *flag = true;
    else if (option == "--verify") {
      const std::string_view text = take();
      options.verify_every = text == "every"  ? 1
                             : text == "last" ? 0
                                              : parse_number(option, text, 1, kAny);
    } else {
      throw UsageError("unknown option '" + std::string(option) + "'");
    }
    if (value) throw UsageError(std::string(option) + " takes no value");
  }
  if (options.launches == 0 && options.seconds == 0) options.launches = kDefaultLaunches;
  return options;
}

std::uint64_t size_of(const Options& options, std::uint64_t default_size, int dimensions) {
  if (options.size != 0) return options.size;
  const double factor = std::pow(options.scale, 1.0 / dimensions);
  return std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(static_cast<double>(default_size) * factor));
}

std::string usage(const std::string& program) {
  return "usage: " + program +
         " [--size N | --scale F] [--launches N] [--seconds S] [--depth D] [--streams S]\n"
         "       [--chain L] [--pause-ms P] [--verify every|last|N] [--seed X] [--pageable]\n"
         "       [--json] [--progress]" +
         (program == "matmul" ? " [--inner K]\n" : "\n") +
         "Runs the kernel again and again on the first CUDA device and checks what it computed.\n"
         "Exit: 0 all right, 1 wrong results, 2 usage, 3 a CUDA call failed.\n";
}

}  // namespace sluice::suite
