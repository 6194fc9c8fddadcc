// SPDX-License-Identifier: Apache-2.0
// RegionMemory: the shared memory of one vGPU's regions: their pool, and the thread that frees what
// was given back (punches it out, so that nobody finds what another left there).
//
// What the thread does not take now waits for the next beat. It is not the thread that rings bells:
// a peer that blocks that one keeps no memory with it.
//
// Owned by a VgpuServer; sluiced's one thread. Channels share the pool and may outlive this.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "mediator/base/limits.h"
#include "mediator/daemon/guests/channel.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice {

class RegionMemory {
 public:
  RegionMemory(boost::asio::io_context& io, uint64_t limit_bytes, std::function<void()> on_freed)
      : pool_(std::make_shared<RegionPool>()),
        thread_(std::make_unique<io::PeerThread>(io, io::PeerThread::Late{}, kScrubs)) {
    pool_->limit_bytes = limit_bytes;
    pool_->post = [this](std::function<void()> work, std::function<void()> then) {
      waiting_.emplace_back(std::move(work), std::move(then));
      post_waiting();
    };
    pool_->on_freed = std::move(on_freed);
  }

  const std::shared_ptr<RegionPool>& pool() const { return pool_; }
  void post_waiting() {
    while (!waiting_.empty()) {
      auto& [work, then] = waiting_.front();
      if (!thread_->post(work, then)) return;  // copies, for it may not take them
      waiting_.pop_front();
    }
  }

  // The vGPU goes: nobody hears of freed memory any more ...
  void mute() { pool_->on_freed = nullptr; }
  // ... and after its channels have gone: what is queued is still carried out. Channels that others
  // hold, if there are any, free without the thread.
  void detach() {
    pool_->post = [](const std::function<void()>& work, const std::function<void()>&) { work(); };
  }

 private:
  static constexpr io::PeerThread::Share kScrubs{limits::kScrubShare,
                                                 limits::kScrubBurstMs * 1'000'000};

  const std::shared_ptr<RegionPool> pool_;
  std::unique_ptr<io::PeerThread> thread_;
  std::deque<std::pair<io::PeerThread::Work, io::PeerThread::Work>> waiting_;
};

}  // namespace sluice
