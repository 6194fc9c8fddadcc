// SPDX-License-Identifier: Apache-2.0
// QuotaLedger: what each vGPU may use of a countable resource (bytes of device memory, bytes of
// the host's, places for contexts), and what its sessions hold of it. sluiced owns one per resource
// and uses it from its one thread; workers ask over the control socket (worker_protocol.h:
// LeaseRequest, LeaseReturn) for more than they need at once, so that most allocations of a guest
// cost no message.
//
// Every byte is charged to a session and through it to its vGPU. When a session ends, whatever the
// way, its leases come back whole; a vGPU with no session holds nothing, and remove_vgpu() checks
// it. What a worker claims to give back is bounded by what it holds. No I/O.
//
// Of a resource that nobody has limits for, each vGPU keeps a part free of the others (kParts): as
// much for each of them, and once more for the next one that is made, but one at least and
// kLargestPart at most. Beyond its part it has what is left of the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::core {

class QuotaLedger {
 public:
  // The scheduler's ids (small and dense).
  using Vgpu = uint32_t;
  using Session = uint32_t;

  enum class Rest : uint8_t { kFirstCome, kParts };
  // `total_bytes`: what all vGPUs together may hold (the GPU's memory less a reserve). Limits of
  // vGPUs may add up to more: then who asks first gets it, or `rest` says otherwise.
  explicit QuotaLedger(uint64_t total_bytes, Rest rest = Rest::kFirstCome)
      : total_bytes_(total_bytes), rest_(rest) {}

  void add_vgpu(Vgpu vgpu, uint64_t limit_bytes);
  // A limit below what is held takes nothing away; it only refuses more.
  void set_limit(Vgpu vgpu, uint64_t limit_bytes);
  void remove_vgpu(Vgpu vgpu);
  void add_session(Vgpu vgpu, Session session);
  // Gives everything back that the session still holds; returns how much that was.
  uint64_t remove_session(Session session);

  // Charges `guest_bytes` to the session, all or nothing. ENOMEM with the limit named if it does
  // not fit; EINVAL for 0 bytes or a session that is not there.
  Result<void> lease(Session session, uint64_t guest_bytes);
  // EINVAL if the session does not hold this much: the worker's books are wrong, which should end
  // it.
  Result<void> give_back(Session session, uint64_t guest_bytes);
  // What the one holds is the other's from now on; both are of one vGPU. EINVAL as give_back().
  Result<void> move(Session from, Session to, uint64_t guest_bytes);

  uint64_t held_by_vgpu(Vgpu vgpu) const;
  uint64_t held_by_session(Session session) const;
  uint64_t limit(Vgpu vgpu) const;
  uint64_t held() const { return held_bytes_; }
  uint64_t total() const { return total_bytes_; }

 private:
  struct VgpuAccount {
    bool present = false;
    uint64_t limit_bytes = 0, held_bytes = 0;
    uint32_t sessions = 0;
  };
  struct SessionAccount {
    bool present = false;
    Vgpu vgpu = 0;
    uint64_t held_bytes = 0;
  };
  SessionAccount* find(Session session) {
    return session < sessions_.size() && sessions_[session].present ? &sessions_[session] : nullptr;
  }

  uint64_t kept_for_others(const VgpuAccount& v, uint64_t guest_bytes) const;

  // More: where there are many vGPUs, one that has many programs is refused while the others have
  // none. Fewer: a neighbour that takes all keeps one with several from starting them.
  static constexpr uint64_t kLargestPart = 4;
  const uint64_t total_bytes_;
  const Rest rest_;
  uint64_t held_bytes_ = 0;
  std::vector<VgpuAccount> vgpus_;
  std::vector<SessionAccount> sessions_;
};

}  // namespace sluice::core
