// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/worker_pages.h"

#include <utility>

#include "mediator/base/clock.h"
#include "mediator/core/worker_protocol.h"

namespace sluice {

Result<void> WorkerPages::make(const Channel& channel, uint32_t slot) {
  auto pages = io::StubPages::make();
  if (!pages) return pages.error();
  pages_ = std::move(*pages);
  // A heartbeat from the start: a worker that checks before the next beat must not find it stale.
  pages_->beat(monotonic_ns());

  bell_ = channel.host_bell(slot + 1);
  wake_ = channel.guest_bell(slot + 1);
  for (WakePair* pair : {&gate_, &ring_}) {
    auto made = make_wake_pair();
    if (!made) return made.error();
    *pair = std::move(*made);
  }
  return {};
}

std::vector<int> WorkerPages::for_worker(const Channel& channel) const {
  using enum worker_protocol::StartFd;
  std::vector<int> fds(kStartFdCount);
  fds[kRegionFd] = channel.region_fd();
  fds[kBellFd] = bell_;
  fds[kWakeFd] = wake_;
  fds[kHostFd] = pages_->host_fd();
  fds[kSignalFd] = pages_->signal_fd();
  fds[kReportFd] = pages_->report_fd();
  fds[kRecordsFd] = pages_->records_fd();
  fds[kGateFd] = gate_.theirs.get();
  fds[kRingFd] = ring_.theirs.get();
  return fds;
}

void WorkerPages::worker_has_them() {
  gate_.theirs.reset();
  ring_.theirs.reset();
}

void WorkerPages::close(io::PeerThread& peers) {
  for (WakePair* pair : {&gate_, &ring_}) peers.close(std::move(pair->ours));
}

}  // namespace sluice
