// SPDX-License-Identifier: Apache-2.0
// What orders accesses, and barriers: who came, who did not.
#include <algorithm>

#include "kernels/exec/checker/checker_block.h"

namespace sluice::exec::detail {
namespace {

// More blocks than this are not distinguished in what a location has published: the oldest
// knowledge is then of no use anyway.
constexpr size_t kMaxKnown = 1u << 16;

std::string at_barrier(uint32_t number) { return "is at barrier " + std::to_string(number); }

}  // namespace

void BlockChecker::learn(uint32_t thread, const KnownTimes& known) {
  for (const auto& [block, time] : known) {
    if (block == linear_) {
      known_here_[thread] = std::max(known_here_[thread], time.writes);
      continue;
    }
    KnownTime& mine = known_blocks_[block];
    mine.writes = std::max(mine.writes, time.writes);
    mine.reads = std::max(mine.reads, time.reads);
  }
}

// `released`: the access itself is a release; otherwise it passes on what a fence before it covers.
void BlockChecker::publish(KnownTimes& known, const Warp& w, bool released) {
  const uint32_t covered = released ? now_ : fenced_[w.index];
  if (known.size() > kMaxKnown) known.clear();
  KnownTime& mine = known[linear_];
  mine.writes = std::max(mine.writes, covered);
  mine.reads = now_;
  // And what this block has learnt itself.
  for (const auto& [block, time] : known_blocks_) {
    KnownTime& theirs = known[block];
    if (covered != 0) theirs.writes = std::max(theirs.writes, time.writes);
    theirs.reads = std::max(theirs.reads, time.reads);
  }
}

void BlockChecker::warp_met(const Warp& w, uint32_t lanes) {
  if (!checker_.options().race) return;
  const std::lock_guard lock(checker_.shadow().mutex());
  auto& known = known_lanes_[w.index];
  const uint32_t now = launch_->time++;
  Times all{};
  uint32_t here = 0;
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(__builtin_ctz(m));
    for (uint32_t k = 0; k < kWarpLanes; ++k) all[k] = std::max(all[k], known[i][k]);
    here = std::max(here, known_here_[w.index * kWarpLanes + i]);
  }
  for (uint32_t m = lanes; m != 0; m &= m - 1) all[static_cast<uint32_t>(__builtin_ctz(m))] = now;
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(__builtin_ctz(m));
    known[i] = all;
    known_here_[w.index * kWarpLanes + i] = here;
  }
}

void BlockChecker::barrier_arrived(const Warp& w, const Inst& in, uint32_t lanes, uint32_t number,
                                   uint32_t threads) {
  Watch& watch = barriers_[number];
  const bool waits = in.imm != 1, aligned = (in.mod & kModAligned) != 0;
  const uint32_t thread = w.index * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(lanes));
  if (!watch.open) {
    watch = {};
    watch.open = true;
    watch.threads = threads;
    watch.first = &in;
    watch.first_thread = thread;
  }
  Watch::Arrival& mine = watch.warps[w.index];
  if (checker_.options().barrier) {
    const std::string n = std::to_string(number);
    const CheckParty other = party(*watch.first, watch.first_thread, at_barrier(number));
    if (threads != watch.threads) {
      const auto count = [](uint32_t t) {
        return t == 0 ? std::string("the whole block") : std::to_string(t) + " threads";
      };
      report_barrier(
          party(in, thread, at_barrier(number)), &other,
          "the one waits for " + count(threads) + ", the other for " + count(watch.threads));
    } else if (aligned && mine.at != nullptr && mine.at != &in) {
      const CheckParty same_warp =
          party(*mine.at, w.index * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(mine.lanes)),
                at_barrier(number));
      report_barrier(party(in, thread, at_barrier(number)), &same_warp,
                     "threads of one warp are at different instructions of barrier " + n);
    } else if (aligned && threads == 0 && watch.first != &in && mine.at == nullptr && in.imm == 0 &&
               watch.first->imm == 0) {
      report_barrier(party(in, thread, at_barrier(number)), &other,
                     "threads of the block are at different instructions of barrier " + n);
    }
  }
  if (mine.at == nullptr) {
    mine.at = &in;
    mine.live = w.live;
  }
  mine.lanes |= lanes;
  mine.waits = mine.waits || waits;
  if (checker_.options().race) {
    const std::lock_guard lock(checker_.shadow().mutex());
    mine.time = launch_->time++;
  }
}

void BlockChecker::barrier_complete(uint32_t number) {
  Watch& watch = barriers_[number];
  if (!watch.open) return;
  watch.open = false;
  if (checker_.options().barrier && watch.threads != 0) {
    // A counted barrier is full, but of this warp only some came.
    for (uint32_t k = 0; k < block_.warp_count; ++k) {
      const Watch::Arrival& a = watch.warps[k];
      const uint32_t missing = a.live & ~a.lanes;
      if (a.at == nullptr || missing == 0 || (a.at->mod & kModAligned) == 0) continue;
      CheckParty other =
          party(0, k * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(missing)), "does not come");
      report_barrier(party(*a.at, k * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(a.lanes)),
                           at_barrier(number)),
                     &other, "only a part of the warp takes part");
    }
  }
  if (!checker_.options().race) return;
  const std::lock_guard lock(checker_.shadow().mutex());
  Times all{};
  uint32_t here = 0, fenced = 0;
  for (uint32_t k = 0; k < block_.warp_count; ++k) {
    const Watch::Arrival& a = watch.warps[k];
    if (a.at == nullptr) continue;
    for (uint32_t j = 0; j < block_.warp_count; ++j) all[j] = std::max(all[j], known_warps_[k][j]);
    for (uint32_t m = a.lanes; m != 0; m &= m - 1)
      here = std::max(here, known_here_[k * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(m))]);
    fenced = std::max(fenced, fenced_[k]);
  }
  const uint32_t now = launch_->time++;
  for (uint32_t k = 0; k < block_.warp_count; ++k) {
    const Watch::Arrival& a = watch.warps[k];
    // A warp of which nobody came to a barrier for all has ended.
    if (a.at != nullptr || watch.threads == 0)
      all[k] = std::max(all[k], a.at != nullptr ? a.time : now);
  }
  for (uint32_t k = 0; k < block_.warp_count; ++k) {
    const Watch::Arrival& a = watch.warps[k];
    if (a.at == nullptr || !a.waits) continue;
    known_warps_[k] = all;
    fenced_[k] = fenced;
    for (uint32_t m = a.lanes; m != 0; m &= m - 1) {
      const auto i = static_cast<uint32_t>(__builtin_ctz(m));
      known_here_[k * kWarpLanes + i] = std::max(known_here_[k * kWarpLanes + i], here);
      // Its own warp: who came, and who has ended.
      for (uint32_t j = 0; j < kWarpLanes; ++j)
        if (((a.lanes >> j) & 1) != 0 || ((a.live >> j) & 1) == 0)
          known_lanes_[k][i][j] = std::max(known_lanes_[k][i][j], a.time);
    }
  }
}

void BlockChecker::cluster_met() {
  if (!checker_.options().race) return;
  const std::lock_guard lock(checker_.shadow().mutex());
  const uint32_t now = launch_->time++;
  for (Times& known : known_warps_) known.fill(now);
  for (auto& lanes : known_lanes_)
    for (Times& known : lanes) known.fill(now);
  std::fill(known_here_.begin(), known_here_.end(), now);
  for (const BlockState* peer : block_.cluster) {
    const BlockChecker& other = *peer->checker;
    if (&other == this) continue;
    KnownTimes theirs = other.known_blocks_;
    theirs[other.linear_] = {now, now};
    for (const auto& [block, time] : theirs) {
      if (block == linear_) continue;
      KnownTime& mine = known_blocks_[block];
      mine.writes = std::max(mine.writes, time.writes);
      mine.reads = std::max(mine.reads, time.reads);
    }
  }
}

void BlockChecker::barrier_passed_by(const Warp& w, uint32_t lanes, const Inst& at) {
  if (!checker_.options().barrier || lanes == 0) return;
  for (uint32_t number = 0; number < barriers_.size(); ++number) {
    const Watch& watch = barriers_[number];
    const Watch::Arrival& a = watch.warps[w.index];
    // Behind it in the text: where lanes wait that have gone around it. Before it wait, in vain,
    // those that are about to leave.
    if (!watch.open || a.at == nullptr || !a.waits || (a.at->mod & kModAligned) == 0 || &at < a.at)
      continue;
    CheckParty other = party(0, w.index * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(lanes)),
                             "goes around it");
    report_barrier(
        party(*a.at, w.index * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(a.lanes)),
              at_barrier(number)),
        &other, "only a part of the warp takes part");
  }
}

void BlockChecker::finish() {
  if (!checker_.options().barrier) return;
  for (uint32_t number = 0; number < barriers_.size(); ++number) {
    const Watch& watch = barriers_[number];
    if (!watch.open) continue;
    uint32_t arrived = 0;
    for (const Watch::Arrival& a : watch.warps)
      arrived += static_cast<uint32_t>(__builtin_popcount(a.lanes));
    report_barrier(
        party(*watch.first, watch.first_thread, "has arrived at barrier " + std::to_string(number)),
        nullptr,
        "the block ends with " + std::to_string(arrived) + " of " + std::to_string(watch.threads) +
            " threads there");
  }
}

void BlockChecker::report_barrier(CheckParty who, const CheckParty* other, std::string detail) {
  Finding f;
  f.kind = CheckKind::kBarrier;
  f.party = std::move(who);
  if (other != nullptr) {
    f.has_other = true;
    f.other = *other;
  }
  f.detail = std::move(detail);
  report(std::move(f));
}

void BlockChecker::new_frame(const Warp& w, uint32_t lane, uint64_t base, uint64_t bytes) {
  if (!checker_.options().uninit) return;
  const size_t first = size_t{block_.local_bytes} * (w.index * kWarpLanes + lane) + base;
  for (size_t k = first; k < first + bytes && k < local_written_.size(); ++k)
    local_written_[k] = false;
}

void BlockChecker::copy_local(const Warp& w, uint32_t lane, uint64_t to, uint64_t from,
                              uint64_t bytes) {
  if (!checker_.options().uninit) return;
  const size_t base = size_t{block_.local_bytes} * (w.index * kWarpLanes + lane);
  if (base + std::max(to, from) + bytes > local_written_.size()) return;
  for (uint64_t k = 0; k < bytes; ++k)
    local_written_[base + to + k] = local_written_[base + from + k];
}

}  // namespace sluice::exec::detail
