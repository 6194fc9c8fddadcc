// SPDX-License-Identifier: Apache-2.0
// Clusters: turns of their blocks, barrier.cluster (PTX ISA, "barrier.cluster").
#include "kernels/exec/run/cluster.h"

#include <algorithm>

namespace sluice::exec::detail {
namespace {

// Warp instructions in a row before the cluster's next block gets its turn.
constexpr uint64_t kBlockSteps = 4096;

// Calls f with each block of the cluster that `block` is in, which may be alone.
template <class F>
void each_block(BlockImpl* block, F f) {
  if (block->cluster.empty()) f(*block);
  for (BlockState* peer : block->cluster) f(*static_cast<BlockImpl*>(peer));
}

}  // namespace

ClusterImpl::ClusterImpl(std::vector<std::unique_ptr<BlockImpl>> blocks, const LaunchShape& launch,
                         Environment& world)
    : blocks_(std::move(blocks)), size_(launch.cluster), environment_(world) {
  std::vector<BlockState*> states;
  for (const auto& block : blocks_) states.push_back(block.get());
  for (uint32_t rank = 0; rank < blocks_.size(); ++rank) blocks_[rank]->join_cluster(states, rank);
}

void ClusterImpl::start(Dim3 first, SmPlace where) {
  next_ = faulted_ = 0;
  for (uint32_t rank = 0; rank < blocks_.size(); ++rank)
    blocks_[rank]->start({first.x + rank % size_.x, first.y + rank / size_.x % size_.y,
                          first.z + rank / size_.x / size_.y},
                         where);
}

void ClusterImpl::move(SmPlace where) {
  for (const auto& block : blocks_) block->move(where);
}
void ClusterImpl::move_rank(uint32_t rank, SmPlace where) { blocks_[rank]->move(where); }

RunResult ClusterImpl::run(uint64_t max_steps) {
  RunResult result;
  const std::atomic<uint32_t>* const preempt = environment_.preempt_sequence;
  const uint32_t seen = preempt != nullptr ? preempt->load(std::memory_order_relaxed) : 0;
  size_t quiet = 0;  // blocks in a row that have ended or can only wait
  size_t stuck = 0;  // those of them that can do nothing at all
  while (result.steps < max_steps) {
    BlockImpl& block = *blocks_[next_];
    bool waits = true, halts = true;
    if (!block.ended) {
      const RunResult turn = block.run(std::min(kBlockSteps, max_steps - result.steps));
      result.steps += turn.steps;
      if (turn.state == RunState::kFault) {
        faulted_ = next_;
        result.state = RunState::kFault;
        return result;
      }
      halts = block.stuck() && turn.steps == 0;
      // One that has just come to the barrier, or ended, may have let others go on.
      waits = turn.state == RunState::kYielded && turn.waiting && (halts || !block.stuck());
    }
    quiet = waits ? quiet + 1 : 0;
    stuck = halts ? stuck + 1 : 0;
    next_ = next_ + 1 < blocks_.size() ? next_ + 1 : 0;
    if (quiet >= blocks_.size()) {
      const auto over = [](const auto& each) { return each->ended; };
      if (std::all_of(blocks_.begin(), blocks_.end(), over)) {
        result.state = RunState::kDone;
        return result;
      }
      if (stuck >= blocks_.size()) {
        const auto first = std::find_if_not(blocks_.begin(), blocks_.end(), over);
        faulted_ = static_cast<size_t>(first - blocks_.begin());
        (*first)->fail_stalled();
        result.state = RunState::kFault;
        return result;
      }
      result.waiting = true;
      return result;
    }
    if (preempt != nullptr && preempt->load(std::memory_order_relaxed) != seen) break;
  }
  return result;
}

// imm: kClusterArrive or kClusterWait. What the manual leaves undefined does what an H100 does: a
// second arrival in a phase counts once, a wait without an arrival goes on at once.
bool BlockImpl::cluster_barrier(WarpState& w, const Inst& in) {
  const uint32_t pc = w.splits[w.current].pc;
  const uint32_t passed = w.splits[w.current].mask & ~w.exec;
  uint32_t& arrived = cluster_arrived_[w.index];
  if (in.imm == kClusterArrive) {
    arrived |= w.exec;
    each_block(this, [](BlockImpl& b) { b.cluster_open_ = true; });
    ++w.splits[w.current].pc;
    release_cluster_if_complete();
    return true;
  }
  const uint32_t waiting = w.exec & arrived;
  if (waiting == 0) {
    ++w.splits[w.current].pc;
    return true;
  }
  const uint32_t going = passed | (w.exec & ~waiting);
  if (going != 0) split_off(w, going, pc + 1);
  Split& split = w.splits[w.current];
  split.state = SplitState::kBarrier;
  split.barrier = kClusterBarrier;
  return false;
}

// All threads of the cluster that have not ended have arrived: a new phase.
void BlockImpl::release_cluster_if_complete() {
  if (!cluster_open_) return;
  bool all = true;
  each_block(this, [&all](BlockImpl& b) {
    for (const WarpState& w : b.warps_) all = all && (w.live & ~b.cluster_arrived_[w.index]) == 0;
  });
  if (!all) return;
  each_block(this, [](BlockImpl& b) {
    if (b.checker != nullptr) b.checker->cluster_met();
  });
  each_block(this, [](BlockImpl& b) {
    b.cluster_open_ = false;
    std::fill(b.cluster_arrived_.begin(), b.cluster_arrived_.end(), 0);
    for (WarpState& w : b.warps_) {
      for (uint32_t k = 0; k < w.split_count; ++k) {
        Split& s = w.splits[k];
        if (s.state != SplitState::kBarrier || s.barrier != kClusterBarrier) continue;
        s.state = SplitState::kReady;
        ++s.pc;
      }
    }
  });
}

bool BlockImpl::waits_for_cluster() const {
  for (const WarpState& w : warps_)
    for (uint32_t k = 0; k < w.split_count; ++k)
      if (w.splits[k].state == SplitState::kBarrier && w.splits[k].barrier == kClusterBarrier)
        return true;
  return false;
}

}  // namespace sluice::exec::detail
