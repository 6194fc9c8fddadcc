// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/state/model.h"

#include <algorithm>
#include <array>

namespace sluice::softgpu {
namespace {

constexpr uint32_t KiB = 1024, MiB = 1024 * KiB;

uint32_t round_up(uint64_t value, uint32_t unit) {
  return static_cast<uint32_t>((value + unit - 1) / unit * unit);
}

// Volta and later; before Ampere nothing of a block's shared memory is the system's.
constexpr SmLimits modern(uint32_t blocks, uint32_t threads, uint32_t shared_kib, bool reserved) {
  SmLimits l;
  l.blocks = blocks;
  l.threads = threads;
  l.shared_bytes = shared_kib * KiB;
  l.shared_reserved = reserved ? KiB : 0;
  l.shared_unit = reserved ? 128 : 256;
  l.shared_per_block_optin = shared_kib * KiB - l.shared_reserved;
  return l;
}
constexpr SmLimits older(uint32_t blocks, uint32_t threads, uint32_t shared_kib, uint32_t parts) {
  SmLimits l;
  l.blocks = blocks;
  l.threads = threads;
  l.shared_bytes = shared_kib * KiB;
  l.shared_reserved = 0;
  l.shared_unit = 256;
  l.sub_partitions = parts;
  l.shared_per_block_optin = 48 * KiB;
  return l;
}

// Few blocks per SM, because a block that is resident but not running delays an eviction by its
// chunk; few SMs, because a machine has few cores. Otherwise a Hopper.
constexpr SmLimits kSluice = modern(4, 2048, 228, true);

// Sources: the programming guide's tables for what depends on the compute capability; the
// architecture white papers and data sheets for SMs, L2 and clocks. kepler13 is the GPU that
// "Enabling Preemptive Multiprogramming on GPUs" simulates (13 SMs of GK110, 208 GB/s).
constexpr std::array kModels = {
    GpuModel{"sluice", "Sluice software GPU", 9, 0, 4, kSluice, 1 * MiB, 1'000'000, 1'000'000, 64,
             3},
    GpuModel{"h200", "Sluice software GPU (H200)", 9, 0, 132, modern(32, 2048, 228, true), 50 * MiB,
             1'980'000, 3'201'000, 6144, 3},
    GpuModel{"h100", "Sluice software GPU (H100)", 9, 0, 132, modern(32, 2048, 228, true), 50 * MiB,
             1'980'000, 2'619'000, 5120, 3},
    GpuModel{"l4", "Sluice software GPU (L4)", 8, 9, 58, modern(24, 1536, 100, true), 48 * MiB,
             2'040'000, 6'251'000, 192, 2},
    GpuModel{"a10", "Sluice software GPU (A10)", 8, 6, 72, modern(16, 1536, 100, true), 6 * MiB,
             1'695'000, 6'251'000, 384, 2},
    GpuModel{"a100", "Sluice software GPU (A100)", 8, 0, 108, modern(32, 2048, 164, true), 40 * MiB,
             1'410'000, 1'215'000, 5120, 3},
    GpuModel{"t4", "Sluice software GPU (T4)", 7, 5, 40, modern(16, 1024, 64, false), 4 * MiB,
             1'590'000, 5'001'000, 256, 3},
    GpuModel{"v100", "Sluice software GPU (V100)", 7, 0, 80, modern(32, 2048, 96, false), 6 * MiB,
             1'530'000, 877'000, 4096, 3},
    GpuModel{"p100", "Sluice software GPU (P100)", 6, 0, 56, older(32, 2048, 64, 2), 4 * MiB,
             1'328'000, 715'000, 4096, 2},
    GpuModel{"k40", "Sluice software GPU (K40)", 3, 5, 15, older(16, 2048, 48, 4), 1536 * KiB,
             745'000, 3'004'000, 384, 2},
    GpuModel{"kepler13", "Sluice software GPU (GK110, 13 SMs)", 3, 5, 13, older(16, 2048, 48, 4),
             1280 * KiB, 706'000, 2'600'000, 320, 2},
};

}  // namespace

std::span<const GpuModel> gpu_models() { return kModels; }

int find_model(std::string_view name) {
  const auto it = std::find_if(kModels.begin(), kModels.end(),
                               [&](const GpuModel& m) { return m.name == name; });
  return it == kModels.end() ? -1 : static_cast<int>(it - kModels.begin());
}

BlockNeeds block_needs(const SmLimits& limits, uint32_t threads, uint32_t registers_per_thread,
                       uint32_t shared_bytes) {
  const uint32_t warps = round_up(std::max(threads, 1u), kWarpThreads) / kWarpThreads;
  const uint32_t warp_registers =
      round_up(uint64_t{std::max(registers_per_thread, 1u)} * kWarpThreads, limits.register_unit);
  BlockNeeds needs;
  needs.threads = warps * kWarpThreads;
  needs.registers = warps * warp_registers;
  needs.shared_bytes =
      round_up(uint64_t{shared_bytes} + limits.shared_reserved, limits.shared_unit);
  // A block's warps lie on the sub-partitions in turn: each must hold as many as the fullest.
  const uint64_t largest_share = uint64_t{round_up(warps, limits.sub_partitions)} * warp_registers;
  if (registers_per_thread > limits.registers_per_thread ||
      largest_share > limits.registers_per_block || shared_bytes > limits.shared_per_block_optin)
    return needs;
  const uint32_t part = limits.registers / limits.sub_partitions;
  const uint32_t warps_by_registers = part / warp_registers * limits.sub_partitions;
  uint32_t fit =
      std::min({limits.blocks, limits.threads / needs.threads, warps_by_registers / warps});
  if (needs.shared_bytes != 0) fit = std::min(fit, limits.shared_bytes / needs.shared_bytes);
  needs.per_sm = fit;
  return needs;
}

}  // namespace sluice::softgpu
