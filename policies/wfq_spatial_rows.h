// What wfq in space (wfq_spatial.cc) keeps of each vGPU, of each SM and of each holder. Plain data; that file's own.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/policy.h"

namespace sluice::policy::wfq_spatial {

inline constexpr uint32_t kNowhere = 0xffffffffu;
inline constexpr int32_t kIdle = -1;

// A launch that was told and has not ended.
struct Told {
  LaunchId id;
  uint32_t width;
};
// A vGPU.
struct Own {
  uint32_t held = 0;      // SMs that it holds and is to keep
  uint32_t leaving = 0;   // that it holds and was told to leave
  uint32_t coming = 0;    // that others were told to leave for it
  uint64_t width = 0;     // SMs that its launches can use together; no limit if no launch was told
  std::vector<Told> launches;
  uint64_t known = 0;     // predicted rest of the launches told, SM-ns; 0: not known
  double per_weight = 0;  // virtual time of a SM-ns
  uint64_t spent = 0;     // used since it turned busy, SM-ns
  int64_t key = 0;        // as the heap knows it; never above the true one (see best())
  uint64_t idle_since_ns = 0, gap_ns = 0;
  double drain_ns = 0;    // from the evict until an SM is left
  uint32_t place = kNowhere;  // in holders_
  bool kept = false;      // idle, and its SMs wait for it
  std::vector<uint16_t> sms;  // held ones, the last to come last
};
struct Sm {
  VgpuId holder = kNoVgpu;
  VgpuId next = kNoVgpu;  // whom it is to be left for
  bool leaving = false;
  uint64_t since_ns = 0;  // granted; or told to leave
};
// A holder as exchange() looks at it.
struct Row {
  VgpuId vgpu = kNoVgpu;
  int32_t level = kIdle;     // its priority, if it is busy
  int64_t ahead = 0;         // ahead_if_taken()
  uint64_t oldest_ns = 0;    // since when it has the SM that it had longest
  uint64_t turn_ns = 0;      // how long it is to have one
  double ns_per_lead = 0;    // its speed, inverse
};
// Orders vGPUs by `key`.
struct Less {
  const std::vector<Own>* own;
  bool operator()(uint32_t a, uint32_t b) const {
    const int64_t x = (*own)[a].key, y = (*own)[b].key;
    return x != y ? x < y : a < b;
  }
};

}  // namespace sluice::policy::wfq_spatial
