// SPDX-License-Identifier: Apache-2.0
// SwitchLogFeed: sluiced's end of the context-switch log of an NVIDIA GPU. The log is read by the
// spawner's recorder, which has the privilege (spawner/switch_recorder.h); this holds the ring in
// which its records come, and says when it has to hurry.
//
//   state     it means                                                 next
//   kNone     no recorder, and why                                     connect(): kRests
//   kRests    a recorder that polls once a second                      hurry(true): kHurries
//   kHurries  a recorder that polls every 10 ms                        hurry(false): kRests
//   from each, a recorder that fails or goes silent: usable() is false; a new one: connect()
//
// Shared by Accounting (figures) and WorkerTimeSlices (shares); each reads the ring for itself. In
// sluiced's one thread. The recorder is trusted, like the spawner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/gpu/switch_ring.h"

namespace sluice {

class SwitchLogFeed {
 public:
  // A recorder serves. Its ring and the socket that takes our byte.
  void connect(Fd ring, Fd control, uint64_t now_ns);
  // There is none.
  void refuse(const std::string& why);
  void hurry(bool yes, uint64_t now_ns);

  // Whether what happens now will be known soon.
  bool usable(uint64_t now_ns) const;
  // Why not.
  std::string why(uint64_t now_ns) const;
  // Another number for each ring. A reader of the present one; null: there is none.
  uint64_t number() const { return number_; }
  std::unique_ptr<gpu::SwitchRingReader> reader() const;

 private:
  enum class State : uint8_t { kNone, kRests, kHurries };
  // A recorder may wait for a processor for so long.
  static constexpr uint64_t kHurryLateNs = 200'000'000, kRestLateNs = 3'000'000'000;

  State state_ = State::kNone;
  std::string why_ = "not asked for";
  std::unique_ptr<gpu::SwitchRingReader> ring_;
  Fd control_;
  uint64_t since_ns_ = 0;  // of the state
  uint64_t number_ = 0;
};

}  // namespace sluice
