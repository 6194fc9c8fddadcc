#include "mediator/softgpu/config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace sluice::softgpu {
namespace {

// Reads variable `name` into `value` if it is set: a number from 1 to `max`, with K, M or G allowed
// behind it.
Result<void> read(const char* name, uint64_t max, uint64_t& value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return {};
  std::string_view rest(text);
  unsigned shift = 0;
  switch (rest.back()) {
    case 'K':
      shift = 10;
      break;
    case 'M':
      shift = 20;
      break;
    case 'G':
      shift = 30;
      break;
    default:
      break;
  }
  if (shift != 0) rest.remove_suffix(1);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || end != rest.data() + rest.size() || number == 0 ||
      number > (max >> shift)) {
    return Error{
        0, std::string(name) + "=" + text + ": wanted a number from 1 to " + std::to_string(max)};
  }
  value = number << shift;
  return {};
}

std::string read_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

Result<Config> config_from_environment() {
  Config config;
  uint64_t sms = config.sms, blocks = config.blocks_per_sm, threads = 0;
  for (const Result<void>& r : {read("SLUICE_SOFT_SMS", kMaxSms, sms),
                                read("SLUICE_SOFT_BLOCKS_PER_SM", kMaxBlocksPerSm, blocks),
                                read("SLUICE_SOFT_MEMORY", kMaxMemoryBytes, config.memory_bytes),
                                read("SLUICE_SOFT_THREADS", kMaxThreads, threads)}) {
    if (!r) return r.error();
  }
  config.sms = static_cast<uint32_t>(sms);
  config.blocks_per_sm = static_cast<uint32_t>(blocks);
  config.threads = static_cast<uint32_t>(threads);
  if (config.threads == 0) config.threads = std::max(1u, std::thread::hardware_concurrency());
  config.gpu_file = read_text("SLUICE_SOFT_GPU");
  config.log = read_text("SLUICE_SOFT_LOG");
  return config;
}

}  // namespace sluice::softgpu
