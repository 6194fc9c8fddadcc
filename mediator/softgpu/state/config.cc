// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/state/config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <thread>

#include "mediator/softgpu/state/model.h"

namespace sluice::softgpu {
namespace {

// Reads variable `name` into `value` if it is set: a number from `min` to `max`, with K, M or G
// allowed behind it.
template <class T>
Result<void> read(const char* name, uint64_t min, uint64_t max, T& value) {
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
  if (error != std::errc() || end != rest.data() + rest.size() || number > (max >> shift) ||
      (number << shift) < min) {
    return Error{0, std::string(name) + "=" + text + ": wanted a number from " +
                        std::to_string(min) + " to " + std::to_string(max)};
  }
  value = static_cast<T>(number << shift);
  return {};
}

// A word of a list; its place there.
Result<void> read_word(const char* name, std::initializer_list<std::string_view> words,
                       uint32_t& value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return {};
  std::string known;
  uint32_t place = 0;
  for (std::string_view word : words) {
    if (word == text) {
      value = place;
      return {};
    }
    ++place;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  return Error{0, std::string(name) + "=" + text + ": wanted one of " + known};
}

std::string read_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// Which GPU it is like, and what that says of its size.
Result<void> read_model(Config& config) {
  if (const std::string name = read_text("SLUICE_SOFT_MODEL"); !name.empty()) {
    const int row = find_model(name);
    if (row < 0) {
      std::string known;
      for (const GpuModel& model : gpu_models())
        known += (known.empty() ? "" : ", ") + std::string(model.name);
      return Error{0, "SLUICE_SOFT_MODEL=" + name + ": wanted one of " + known};
    }
    config.model = static_cast<uint32_t>(row);
  }
  const GpuModel& model = gpu_models()[config.model];
  config.sms = model.sms;
  config.blocks_per_sm = model.sm.blocks;
  return {};
}

// The file that processes share, and this process in it.
Result<void> read_shared_gpu(Config& config) {
  config.gpu_file = read_text("SLUICE_SOFT_GPU");
  uint32_t fd = 0;
  for (const Result<void>& r : {read("SLUICE_SOFT_GPU_FD", 3, kMaxDescriptor, fd),
                                read("SLUICE_SOFT_PID", 1, UINT32_MAX, config.pid)}) {
    if (!r) return r.error();
  }
  if (fd != 0) config.gpu_fd = static_cast<int>(fd);
  if (config.pid == 0) config.pid = static_cast<uint32_t>(::getpid());
  return {};
}

}  // namespace

Result<Config> config_from_environment() {
  Config config;
  if (auto read = read_model(config); !read) return read.error();
  uint32_t green = 0, smid = 0;
  uint64_t megabytes = config.switch_bytes_per_second / 1'000'000;
  // The model `sluice` has few blocks per SM by its own choice, not a GPU's.
  const uint32_t most_blocks = config.model == 0 ? kMaxBlocksPerSm : config.blocks_per_sm;
  for (const Result<void>& r :
       {read("SLUICE_SOFT_SMS", 1, SLUICE_SOFT_MAX_SMS, config.sms),
        read("SLUICE_SOFT_BLOCKS_PER_SM", 1, most_blocks, config.blocks_per_sm),
        read("SLUICE_SOFT_MEMORY", 1, kMaxMemoryBytes, config.memory_bytes),
        read("SLUICE_SOFT_THREADS", 1, kMaxThreads, config.threads),
        read("SLUICE_SOFT_TIMESLICE_US", kMinTimesliceUs, kMaxTimesliceUs, config.timeslice_us),
        read("SLUICE_SOFT_SWITCH_NS", 0, kMaxSwitchNs, config.switch_fixed_ns),
        read("SLUICE_SOFT_SWITCH_MBPS", 0, kMaxSwitchMbps, megabytes),
        read("SLUICE_SOFT_SM_GROUP", 0, SLUICE_SOFT_MAX_SMS, config.sm_group),
        read("SLUICE_SOFT_STALL_MS", kMinStallMs, kMaxStallMs, config.stall_ms),
        read("SLUICE_SOFT_FAULT_US", 0, kMaxFaultStallUs, config.fault_stall_us),
        read("SLUICE_SOFT_EXCEPTION_US", 0, kMaxFaultStallUs, config.exception_stall_us),
        read("SLUICE_SOFT_CONTEXT_US", 0, kMaxFaultStallUs, config.context_stall_us),
        read("SLUICE_SOFT_MODULE_US", 0, kMaxFaultStallUs, config.module_stall_us),
        read("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 1, 100, config.thread_percentage),
        read_word("SLUICE_SOFT_MODE", {"fcfs", "timeslice", "mps"}, config.mode),
        read_word("SLUICE_SOFT_GREEN", {"on", "permuted", "scattered", "fail"}, green),
        read_word("SLUICE_SOFT_SMID", {"physical", "virtual"}, smid),
        read_word("SLUICE_SOFT_PREEMPTION", {"save", "drain"}, config.preemption)}) {
    if (!r) return r.error();
  }
  config.switch_bytes_per_second = megabytes * 1'000'000;
  config.green = static_cast<GreenContexts>(green);
  config.virtual_smid = smid != 0;
  config.sm_group = std::min(config.sm_group, config.sms);
  if (config.threads == 0) config.threads = std::max(1u, std::thread::hardware_concurrency());
  if (auto read = read_shared_gpu(config); !read) return read.error();
  config.log = read_text("SLUICE_SOFT_LOG");
  config.check = read_text("SLUICE_SOFT_CHECK");
  config.check_log = read_text("SLUICE_SOFT_CHECK_LOG");
  return config;
}

}  // namespace sluice::softgpu
