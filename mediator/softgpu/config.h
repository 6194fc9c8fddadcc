// What the software GPU is like, from the environment of the process that loads it. Read once, in
// cuInit; plain values afterwards. No other code of the library reads the environment.
//
//   SLUICE_SOFT_SMS            number of SMs (default 4)
//   SLUICE_SOFT_BLOCKS_PER_SM  resident blocks per SM (default 4; Hopper: 32). Few, because a block
//                              that is resident but not running delays an eviction by its chunk.
//   SLUICE_SOFT_MEMORY         device memory, bytes or with K, M, G (default 2G)
//   SLUICE_SOFT_THREADS        host threads that run SMs (default: the fewer of SMs and cores)
//   SLUICE_SOFT_GPU            file through which processes share one GPU (default: not shared).
//                              Whoever creates it decides SMs, blocks and memory for all.
//   SLUICE_SOFT_LOG            where kernel faults are told: `stderr`, or a file to append to
#pragma once

#include <cstdint>
#include <string>

#include "mediator/base/result.h"

namespace sluice::softgpu {

struct Config {
  uint32_t sms = 4;
  uint32_t blocks_per_sm = 4;
  uint64_t memory_bytes = uint64_t{2} << 30;
  uint32_t threads = 0;  // never 0 after config_from_environment
  std::string gpu_file;  // empty: private
  std::string log;       // empty: nowhere
};

// Limits of what may be asked for; beyond them the tables and the address space get silly.
inline constexpr uint32_t kMaxSms = 256;
inline constexpr uint32_t kMaxBlocksPerSm = 32;
inline constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 40;
inline constexpr uint32_t kMaxThreads = 256;

// Errors name the variable and its value.
Result<Config> config_from_environment();

}  // namespace sluice::softgpu
