// SPDX-License-Identifier: Apache-2.0
// What the software GPU is like, from the environment of the process that loads it. Read once, in
// cuInit; plain values afterwards. No other code of the library reads the environment but for
// SLUICE_SOFT_ISA (kernels/exec/ops/handlers.cc). docs/operating/software-gpu.md explains them.
//
// Decided by whoever makes the shared file, for all:
//   SLUICE_SOFT_MODEL          the GPU whose shape it has (model.h; default `sluice`)
//   SLUICE_SOFT_SMS            number of SMs (default the model's)
//   SLUICE_SOFT_BLOCKS_PER_SM  resident blocks per SM, at most the model's (default the model's)
//   SLUICE_SOFT_MEMORY         device memory, bytes or with K, M, G (default 2G)
//   SLUICE_SOFT_MODE           `fcfs` (default), `timeslice` or `mps`
//   SLUICE_SOFT_PREEMPTION     `save` (default) or `drain`
//   SLUICE_SOFT_TIMESLICE_US   slice of a new context (default 2048)
//   SLUICE_SOFT_SWITCH_NS      what a change of context costs besides its state (default 82000)
//   SLUICE_SOFT_SWITCH_MBPS    MB/s at which state is saved and restored, `0`: no cost
//                              (default 500000)
//   SLUICE_SOFT_SM_GROUP       SMs in the smallest group of a green context (default 2, at most
//                              the number of SMs), `0`: no green contexts
//   SLUICE_SOFT_FAULT_US       for how long a kernel's access to an address that is not mapped
//                              stops every process of the GPU (default 150000), `0`: not at all
//   SLUICE_SOFT_EXCEPTION_US   likewise a misaligned access, and what else an SM finds wrong
//                              (default 78000)
//   SLUICE_SOFT_STALL_MS       a process that has the GPU and stands still this long loses it
//                              (default 500)
// This process's own:
//   SLUICE_SOFT_CONTEXT_US     for how long every process of the GPU stands still when this one
//                              opens or ends a context (default 0), as by a driver's locks
//   SLUICE_SOFT_MODULE_US      likewise when it loads a module (default 0)
//   SLUICE_SOFT_THREADS        host threads that run SMs (default: the fewer of SMs and cores)
//   SLUICE_SOFT_GREEN          green contexts: `on` (default); `permuted`: groups come in another
//                              order; `scattered`: groups of SMs that are not neighbours; `fail`:
//                              none is ever made, as on a GPU that is full
//   SLUICE_SOFT_SMID           in green contexts %smid is the SM (`physical`, default) or counts
//                              from 0 through the context's (`virtual`)
//   SLUICE_SOFT_GPU            file through which processes share one GPU (default: not shared)
//   SLUICE_SOFT_GPU_FD         that file as an open descriptor of this process alone, which it
//                              takes over (default: the file is opened by its name)
//   SLUICE_SOFT_PID            this process as others know it, in a pid namespace
//                              (default: getpid())
//   SLUICE_SOFT_CHECK          what to look for while kernels run: memory, race, uninit, barrier
//                              or all, with commas; `error` makes a launch with a finding fail
//                              (docs/operating/checker.md). Much slower.
//   SLUICE_SOFT_CHECK_LOG      file to which findings are appended, a JSON object per line
//   SLUICE_SOFT_LOG            where kernel faults are reported: `stderr`, or a file to append to
//   CUDA_MPS_ACTIVE_THREAD_PERCENTAGE  mps: its contexts get such a part of the SMs
#pragma once

#include <cstdint>
#include <string>

#include "abi/soft_gpu.h"
#include "mediator/base/result.h"

namespace sluice::softgpu {

enum class GreenContexts : uint32_t { kOn, kPermuted, kScattered, kFail };

struct Config {
  uint32_t model = 0;  // row of gpu_models()
  uint32_t sms = 4;
  uint32_t blocks_per_sm = 4;
  uint64_t memory_bytes = uint64_t{2} << 30;
  uint32_t mode = SLUICE_SOFT_FCFS;
  uint32_t preemption = SLUICE_SOFT_SAVE;
  // The driver's default (2048 us for compute groups, measured on an H200).
  uint32_t timeslice_us = 2048;
  // Measured on an H200: 80 to 85 us between one context's end and the next one's start, and 130 to
  // 144 us of saving and restoring at full occupancy, which for 132 SMs' registers (33.8 MB, out
  // and in) makes 0.5 TB/s.
  uint64_t switch_fixed_ns = 82'000;
  uint64_t switch_bytes_per_second = 500'000'000'000;
  uint32_t stall_ms = 500;
  // Measured on an H100, contexts of their own: the neighbour's longest wait when a kernel stored
  // to an address that is not mapped (146 to 151 ms) and to a misaligned one (78 ms). `trap` stops
  // nobody (0.4 ms).
  uint32_t fault_stall_us = 150'000;
  uint32_t exception_stall_us = 78'000;
  uint32_t context_stall_us = 0, module_stall_us = 0;
  // Measured on an H200: 66 groups of two, with CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.
  uint32_t sm_group = 2;
  uint32_t threads = 0;  // never 0 after config_from_environment
  uint32_t thread_percentage = 100;
  GreenContexts green = GreenContexts::kOn;
  bool virtual_smid = false;
  std::string gpu_file;   // empty: private
  int gpu_fd = -1;        // gpu_file, if it is open already
  uint32_t pid = 0;       // never 0 after config_from_environment
  std::string log;        // empty: nowhere
  std::string check;      // as given: exec::CheckOptions knows it
  std::string check_log;  // empty: none
};

// Limits of what may be asked for; beyond them the tables and the address space get silly.
inline constexpr uint32_t kMaxBlocksPerSm = 32;
inline constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 40;
inline constexpr uint32_t kMaxThreads = 256;
inline constexpr uint32_t kMaxDescriptor = 1 << 20;
// Below, a GPU does little but change contexts (measured: at 100 us 28 % is left); above, a context
// could as well be alone.
inline constexpr uint32_t kMinTimesliceUs = 50;
inline constexpr uint32_t kMaxTimesliceUs = 10'000'000;
inline constexpr uint64_t kMaxSwitchNs = 1'000'000'000;
inline constexpr uint64_t kMaxSwitchMbps = 100'000'000;
// A fault that stops the GPU for longer than this would stop tests, too.
inline constexpr uint32_t kMaxFaultStallUs = 10'000'000;
inline constexpr uint32_t kMinStallMs = 20, kMaxStallMs = 3'600'000;

// Errors name the variable and its value.
Result<Config> config_from_environment();

}  // namespace sluice::softgpu
