// SPDX-License-Identifier: Apache-2.0
// GpuModel: the shape of a named GPU, as far as programs and schedulers can tell: SMs, what one SM
// has room for, what one block may take. And the arithmetic of occupancy on it.
//
// Pure constants and functions; any thread. Says nothing of speed: an SM of every model runs as
// fast as the host lets it. The instruction set is the same for all (what kernels/exec knows, to
// sm_90), so that code for today's GPUs can run on the SMs that a paper had.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::softgpu {

// What one SM has room for and in which portions it is given out (CUDA C++ Programming Guide,
// "Compute Capabilities", tables of technical specifications).
struct SmLimits {
  uint32_t blocks = 32;
  uint32_t threads = 2048;
  uint32_t registers = 65536;
  uint32_t shared_bytes = 228 * 1024;
  // A warp's registers come from one of this many equal parts of the SM's.
  uint32_t sub_partitions = 4;
  uint32_t register_unit = 256;  // registers are given to a warp in such units
  uint32_t shared_unit = 128;
  uint32_t shared_reserved = 1024;  // the system's own share of each block's shared memory
  uint32_t registers_per_block = 65536;
  uint32_t registers_per_thread = 255;
  uint32_t shared_per_block = 48 * 1024;
  uint32_t shared_per_block_optin = 227 * 1024;
};
inline constexpr uint32_t kWarpThreads = 32;

// What one block takes of an SM.
struct BlockNeeds {
  uint32_t threads = 0;
  uint32_t registers = 0;
  uint32_t shared_bytes = 0;
  uint32_t per_sm = 0;  // how many such blocks an empty SM holds; 0: the block cannot run
};
BlockNeeds block_needs(const SmLimits& limits, uint32_t threads, uint32_t registers_per_thread,
                       uint32_t shared_bytes);

struct GpuModel {
  std::string_view name;    // as in SLUICE_SOFT_MODEL
  std::string_view device;  // as cuDeviceGetName says
  uint32_t major, minor;    // compute capability
  uint32_t sms;
  SmLimits sm;
  uint32_t l2_bytes;
  uint32_t clock_khz, memory_clock_khz, bus_bits;
  uint32_t copy_engines;
};

// Row 0 is the default.
std::span<const GpuModel> gpu_models();
// Its row; -1: no such model.
int find_model(std::string_view name);

}  // namespace sluice::softgpu
