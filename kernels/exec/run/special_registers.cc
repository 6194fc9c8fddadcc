// SPDX-License-Identifier: Apache-2.0
// mov from a special register. Some differ by lane, most are the warp's, some are 64 bits wide.
#include "kernels/exec/block/block_state.h"

namespace sluice::exec::detail {
namespace {

// Writes value(lane) to each executing lane. Lanes that do not live may be written: the usual,
// whole warp takes a loop that vectorises.
template <typename Value>
void write_lanes(Warp& w, const Inst& in, Value value) {
  auto* d = reinterpret_cast<uint32_t*>(w.regs + in.d);
  if (w.exec == w.live) {
    for (uint32_t i = 0; i < kWarpLanes; ++i) d[i] = value(i);
    return;
  }
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t i = static_cast<uint32_t>(__builtin_ctz(m));
    d[i] = value(i);
  }
}

// False: it does not differ by lane.
bool write_lane_special(Warp& w, const Inst& in) {
  switch (static_cast<Special>(in.imm)) {
    case Special::kTidX:
      write_lanes(w, in, [&w](uint32_t i) { return w.tid[0][i]; });
      return true;
    case Special::kTidY:
      write_lanes(w, in, [&w](uint32_t i) { return w.tid[1][i]; });
      return true;
    case Special::kTidZ:
      write_lanes(w, in, [&w](uint32_t i) { return w.tid[2][i]; });
      return true;
    case Special::kLaneId:
      write_lanes(w, in, [](uint32_t i) { return i; });
      return true;
    case Special::kMaskEq:
      write_lanes(w, in, [](uint32_t i) { return 1u << i; });
      return true;
    case Special::kMaskLt:
      write_lanes(w, in, [](uint32_t i) { return (1u << i) - 1; });
      return true;
    case Special::kMaskLe:
      write_lanes(w, in, [](uint32_t i) { return (2u << i) - 1; });
      return true;
    case Special::kMaskGt:
      write_lanes(w, in, [](uint32_t i) { return ~((2u << i) - 1); });
      return true;
    case Special::kMaskGe:
      write_lanes(w, in, [](uint32_t i) { return ~((1u << i) - 1); });
      return true;
    default:
      return false;
  }
}

uint32_t side(const Dim3& d, uint32_t axis) { return axis == 0 ? d.x : axis == 1 ? d.y : d.z; }

// Where the block is among clusters, and in its own.
uint64_t cluster_special(const BlockState& b, Special which) {
  const Dim3& size = b.shape.cluster;
  const auto axis = [which](Special x) {
    return static_cast<uint32_t>(which) - static_cast<uint32_t>(x);
  };
  switch (which) {
    case Special::kClusterIdX:
    case Special::kClusterIdY:
    case Special::kClusterIdZ: {
      const uint32_t k = axis(Special::kClusterIdX);
      return side(b.ctaid, k) / side(size, k);
    }
    case Special::kNclusterIdX:
    case Special::kNclusterIdY:
    case Special::kNclusterIdZ: {
      const uint32_t k = axis(Special::kNclusterIdX);
      return side(b.shape.grid, k) / side(size, k);
    }
    case Special::kClusterCtaidX:
    case Special::kClusterCtaidY:
    case Special::kClusterCtaidZ: {
      const uint32_t k = axis(Special::kClusterCtaidX);
      return side(b.ctaid, k) % side(size, k);
    }
    case Special::kClusterNctaidX:
    case Special::kClusterNctaidY:
    case Special::kClusterNctaidZ:
      return side(size, axis(Special::kClusterNctaidX));
    case Special::kClusterCtaRank:
      return b.rank;
    case Special::kClusterNctaRank:
      return size.count();
    default:  // kExplicitCluster
      return b.shape.explicit_cluster ? 1 : 0;
  }
}

// Where the warp is: its place in the launch, the block and the GPU; shared memory's size.
uint64_t place_special(const Warp& w, Special which) {
  const BlockState& b = *w.block;
  switch (which) {
    case Special::kNtidX:
      return b.shape.block.x;
    case Special::kNtidY:
      return b.shape.block.y;
    case Special::kNtidZ:
      return b.shape.block.z;
    case Special::kCtaidX:
      return b.ctaid.x;
    case Special::kCtaidY:
      return b.ctaid.y;
    case Special::kCtaidZ:
      return b.ctaid.z;
    case Special::kNctaidX:
      return b.shape.grid.x;
    case Special::kNctaidY:
      return b.shape.grid.y;
    case Special::kNctaidZ:
      return b.shape.grid.z;
    case Special::kWarpId:
      return w.index;
    case Special::kNwarpId:
      return b.warp_count;
    case Special::kSmId:
      return b.place.smid;
    case Special::kNsmId:
      return b.place.nsmid;
    case Special::kGridId:
      return b.shape.grid_id;
    case Special::kDynamicSmem:
      return b.shape.dynamic_shared_bytes;
    case Special::kTotalSmem:
      return (b.shared_bytes + 127) & ~127u;  // the hardware's unit
    case Special::kDynamicBase:
      return (b.static_shared_bytes + 15) & ~15u;
    case Special::kGridWorkspaceHi:
      return b.shape.grid_workspace >> 32;
    case Special::kGridWorkspaceLo:
      return b.shape.grid_workspace;
    case Special::kReservedBegin:
    case Special::kReserved0:
      return kReservedShared;
    case Special::kReserved1:  // the toolkit wants 288 bytes there
      return kReservedShared + kReservedSharedBytes / 2;
    case Special::kReservedEnd:
      return kReservedShared + kReservedSharedBytes;
    case Special::kReservedCap:
      return kReservedSharedBytes;
    default:
      return cluster_special(b, which);
  }
}

uint64_t warp_special(Warp& w, Special which) {
  BlockState& b = *w.block;
  // Reading a clock takes time: a loop that waits for it to advance ends.
  const auto clock = [&b] { return b.clock += 8; };
  const auto timer = [&w, &b] {
    ++w.spin;
    return b.environment->global_timer_ns();
  };
  switch (which) {
    case Special::kClock:
    case Special::kClock64:
      return clock();
    case Special::kClockHi:
      return clock() >> 32;
    case Special::kGlobalTimer:
    case Special::kGlobalTimerLo:
      return timer();
    case Special::kGlobalTimerHi:
      return timer() >> 32;
    default:
      return place_special(w, which);
  }
}

bool is_wide(Special which) {
  return which == Special::kGridId || which == Special::kClock64 || which == Special::kGlobalTimer;
}

}  // namespace

void read_special(Warp& w, const Inst& in) {
  if (write_lane_special(w, in)) return;
  const auto which = static_cast<Special>(in.imm);
  const uint64_t value = warp_special(w, which);
  if (!is_wide(which))
    return write_lanes(w, in, [value](uint32_t) { return static_cast<uint32_t>(value); });
  auto* d = reinterpret_cast<uint64_t*>(w.regs + in.d);
  for (uint32_t m = w.exec; m != 0; m &= m - 1) d[__builtin_ctz(m)] = value;
}

}  // namespace sluice::exec::detail
