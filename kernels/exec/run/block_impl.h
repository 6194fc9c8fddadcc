// SPDX-License-Identifier: Apache-2.0
// BlockImpl: the block behind block.h. Internal to kernels/exec; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp_state.h"
#include "kernels/exec/checker/checker_block.h"
#include "kernels/exec/program/inst.h"

namespace sluice::exec::detail {

inline constexpr uint32_t kMaxWarps = kMaxBlockThreads / kWarpLanes;
inline constexpr uint32_t kBarriers = 16;
inline constexpr uint8_t kClusterBarrier = kBarriers;  // Split::barrier of barrier.cluster.wait

struct Barrier {
  uint32_t arrived[kMaxWarps] = {};  // lanes of each warp
  uint32_t needed = 0;               // threads; 0: every live one
  uint32_t population = 0;           // bar.red.popc so far
  bool all = true, any = false;      // bar.red.and/.or so far
  bool open = false;                 // somebody has arrived
};

// What lanes of a warp call in one instruction: by a pointer they may call different functions.
struct CalleeLanes {
  uint32_t callable, lanes;
};
class Callees {
 public:
  void add(uint32_t callable, uint32_t lanes) { groups_[count_++] = {callable, lanes}; }
  const CalleeLanes* begin() const { return groups_; }
  const CalleeLanes* end() const { return groups_ + count_; }

 private:
  CalleeLanes groups_[kWarpLanes];
  uint32_t count_ = 0;
};

class BlockImpl final : public Block, public BlockState {
 public:
  BlockImpl(std::shared_ptr<const Image> image, uint32_t entry, const LaunchShape& launch,
            std::span<const std::byte> parameters, MemoryMap& memory, Environment& world);

  bool has_memory() const {
    return registers_.data != nullptr && shared_bytes_.data != nullptr &&
           local_bytes_.data != nullptr && thread_ids_.data != nullptr;
  }
  void start(Dim3 block, SmPlace where) override;
  RunResult run(uint64_t max_steps) override;
  const Fault& fault() const override { return fault_; }
  void move(SmPlace where) override { place = where; }
  // Its place in a cluster, whose blocks are all BlockImpls and run on the same thread.
  void join_cluster(const std::vector<BlockState*>& blocks, uint32_t own_rank) {
    cluster = blocks;
    rank = own_rank;
  }
  // The last run() ended because every warp waits for other blocks of the cluster.
  bool stuck() const { return stuck_; }
  // Nothing of it can ever go on: a fault.
  void fail_stalled();

 private:
  enum class TurnEnd { kUsedUp, kSpun, kBlocked, kFault };
  struct Turn {
    uint64_t steps = 0;
    TurnEnd end = TurnEnd::kBlocked;
  };

  // Runs one warp until it blocks or its turn is over. warp_loop.cc.
  Turn run_turn(WarpState& warp, uint64_t max_steps);
  bool find_ready_split(WarpState& warp);
  bool run_split(WarpState& warp, const Handler* table, uint64_t limit, uint64_t& steps);
  void lose_patience(WarpState& warp, bool spun);
  // Carries out a control instruction of the current split; false: the split cannot go on now (it
  // waits or is gone) or, with fault_kind set, faulted.
  bool control(WarpState& warp, const Inst& inst);
  bool branch(WarpState& warp, const Inst& inst);
  bool branch_indexed(WarpState& warp, const Inst& inst);
  // Calls and the stack. calls.cc.
  bool call(WarpState& warp, const Inst& inst);
  bool callees_by_pointer(WarpState& warp, const Inst& inst, Callees& out);
  bool make_frames(WarpState& warp, const Inst& inst, const Callees& callees,
                   uint64_t (&bases)[kWarpLanes]);
  bool save_for(WarpState& warp, int32_t join, const Callees& callees);
  bool return_from(WarpState& warp, const Inst& inst);
  bool take_results(WarpState& warp, const Inst& inst);
  bool allocate_stack(WarpState& warp, const Inst& inst);
  void restore_call(WarpState& warp, int32_t join, uint32_t lanes);
  bool next_frame(WarpState& warp, uint32_t lane, uint64_t bytes, uint64_t& base) const;
  bool exit_lanes(WarpState& warp, uint32_t lanes);
  bool join_here(WarpState& warp, const Inst& inst);
  bool barrier(WarpState& warp, const Inst& inst);
  void release_barrier_if_complete(uint32_t number);
  // barrier.cluster. cluster.cc.
  bool cluster_barrier(WarpState& warp, const Inst& inst);
  void release_cluster_if_complete();
  bool waits_for_cluster() const;
  // Warp-wide operations (collective.cc): executes every group of lanes that is complete.
  bool collective(WarpState& warp, const Inst& inst);
  bool finish_waiting_group(WarpState& warp);
  void compute(WarpState& warp, const uint32_t* members, uint32_t member_count);
  bool builtin(WarpState& warp, const Inst& inst);
  bool builtin_of_lane(WarpState& warp, const Inst& inst, uint32_t lane);
  // Splits off `lanes` of the current split (a proper part of it) at `pc`; the rest stays current.
  uint32_t split_off(WarpState& warp, uint32_t lanes, uint32_t pc);
  std::string near_shared(uint64_t inside) const;
  void record_fault(const WarpState& warp, uint32_t pc, const std::string& detail);
  bool resolve_stall();
  RunState finish();
  void set_up_warp(uint32_t index);
  bool is_alive() const;
  bool get_going(RunResult& result);
  // Somebody wants this thread: the preempt sequence is not what it was when run() began.
  bool preempted() const {
    return environment->preempt_sequence != nullptr &&
           environment->preempt_sequence->load(std::memory_order_relaxed) != preempt_seen_;
  }

  std::shared_ptr<const Image> image_;
  const Code& code_;
  uint32_t entry_;
  std::vector<std::byte> parameters_;
  AlignedBytes registers_, shared_bytes_, local_bytes_, thread_ids_;
  std::vector<uint32_t> predicates_;
  std::vector<WarpState> warps_;
  std::array<Barrier, kBarriers> barriers_;
  // barrier.cluster: lanes of each warp that have arrived in this phase; of a block alone or of the
  // first of a cluster, whether any of the cluster has.
  std::vector<uint32_t> cluster_arrived_;
  bool cluster_open_ = false;
  bool stuck_ = false;
  uint32_t next_warp_ = 0;
  uint32_t preempt_seen_ = 0;
  bool faulted_ = false;
  Fault fault_;
  std::string detail_;
  std::unique_ptr<BlockChecker> checker_owner_;
};

}  // namespace sluice::exec::detail
