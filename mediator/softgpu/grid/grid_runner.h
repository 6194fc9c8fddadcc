// SPDX-License-Identifier: Apache-2.0
// GridRunner: the SMs of the software GPU. Runs grids of thread blocks on host threads and takes
// the shared GPU for them (SharedGpu): turn by turn, or beside other contexts (mps).
//
// Grids of one context start by priority, then in the order in which they were submitted; blocks of
// a grid start in the order of their index, each on an SM with the fewest that its context may use
// and that has room; a later grid's blocks start when all earlier grids' have. Any host thread runs
// any SM's blocks, in slices, so blocks that wait for one another get on. Grids of a green context
// have SMs of their own (Grid::confine) and an order of their own: what finds no room in one holds
// up nothing of the others.
//
// Blocks of one cluster are one exec::Block, which runs on one thread, and take room on one SM
// each, on whichever have it: they are placed, preempted and ended together. All SMs are one GPC.
//
// A context leaves the engine when it has nothing to run; in fcfs mode also after a kernel, and in
// timeslice mode when its slice is over, if another context waits. It is preempted by draining
// (running blocks finish, no other starts) or by saving: running blocks look at the preempt
// sequence at back edges, leave the SM, are parked, and are the first to be placed again, perhaps
// on another SM. So are blocks on an SM that is taken away from their context.
//
// Owned by the library's state. Its threads, named softgpu-smN, are started with the first grid and
// sleep while there is nothing to run. Any thread may submit. It knows nothing of streams: whoever
// submits has seen to the order.
#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/exec/block/block.h"
#include "mediator/softgpu/grid/run_queue.h"
#include "mediator/softgpu/shared/shared_gpu.h"
#include "mediator/softgpu/state/model.h"

namespace sluice::softgpu {

// One physical launch. Filled by whoever submits it, then the runner's until on_done.
struct Grid {
  std::shared_ptr<const exec::Image> image;
  std::string entry;
  exec::LaunchShape shape;
  std::vector<std::byte> params;
  exec::MemoryMap* map = nullptr;  // of the context, which outlives the grid
  unsigned slot = 0;               // the context's
  int priority = 0;                // as CUDA's: the smaller the more urgent
  BlockNeeds needs;                // of one block; must fit on an empty SM
  bool together = false;  // cooperative: its blocks wait for one another, so all have to be on SMs
  // Of a green context: the SMs that its blocks may be on, the context's number, not 0, and whether
  // its blocks see these SMs counted from 0.
  void confine(const SmSet& to, uint64_t green_context, bool count_sms) {
    sms = to;
    green = green_context;
    counts_sms = count_sms;
  }
  // Called once, by a runner's thread that holds no lock, when no block of the grid runs any more.
  // `fault` is kNone if it ran to its end.
  using Done = std::function<void(const exec::Fault& fault)>;
  Done on_done;
  // Where its kernel launches kernels: called instead, and calls on_done when they have run.
  std::function<void(const exec::Fault& fault, const Done& on_done)> run_children;

 private:
  friend class GridRunner;
  SmSet sms = SmSet().set();
  uint64_t green = 0;
  bool counts_sms = false;
  // A block, or cluster, that was taken off its SMs, with all its state; null: before its first
  // instruction.
  struct Parked {
    std::unique_ptr<exec::Block> block;
    uint64_t index;
  };
  // Of blocks, or of clusters.
  uint64_t order = 0;  // mps: among those of all processes
  uint64_t total = 0;
  uint64_t next = 0;      // first one not yet started
  uint64_t resident = 0;  // started and not ended, parked ones not counted
  std::deque<Parked> parked;
  std::vector<uint16_t> on_sm;  // its resident blocks on each SM
  std::atomic<bool> abandoned{false};
  exec::Fault fault;  // the first one; written before abandoned is set, under the runner's lock

  bool has_more() const { return !abandoned && (next != total || !parked.empty()); }
  // What %smid says there.
  uint32_t name_of(uint32_t sm) const {
    return counts_sms && sms[sm] ? static_cast<uint32_t>((sms << (kMaxSms - sm)).count()) : sm;
  }
  uint32_t cluster() const { return static_cast<uint32_t>(shape.cluster.count()); }
  uint64_t state_bytes() const {
    return cluster() * (uint64_t{needs.registers} * 4 + needs.shared_bytes);
  }
};

class GridRunner : private exec::Environment {
 public:
  GridRunner(SharedGpu& gpu, uint32_t threads);
  ~GridRunner() override;

  void submit(std::shared_ptr<Grid> grid);
  // What all blocks report to. Before the first grid; must outlive the runner.
  void check_with(exec::Checker* with) { checker = with; }
  // Stops all threads at the end of their slices and leaves the GPU. What was running is lost; no
  // on_done is called any more. For the end of the process.
  void stop();

  const SmLimits& limits() const { return limits_; }
  uint32_t sms() const { return sms_; }
  // Those of them that blocks may be on: of the context itself, and of a green context in it that
  // has `green`. The controller's set overrides both (sluice_soft_channel::sm_set): where it
  // leaves none of a green context's SMs, its blocks run where the context's may.
  SmSet sms_of(unsigned slot) const;
  static SmSet within(const SmSet& context, const SmSet& green) {
    const SmSet both = context & green;
    return both.any() ? both : context;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using GridRef = std::shared_ptr<Grid>;

  // How a context stands to the GPU.
  enum class Presence : uint8_t {
    kOff,        // has nothing to run
    kQueued,     // has a ticket
    kSwitching,  // has the engine; its state is being brought in
    kOn,         // runs
    kLeaving,    // is being preempted: blocks go
    kSaving,     // all are gone; their state is being brought out
  };
  struct Client {
    std::deque<GridRef> ready;    // by priority, then order
    std::vector<GridRef> active;  // likewise; have begun
    Presence presence = Presence::kOff;
    bool lost = false;                       // kLeaving: the engine is not ours any more
    uint32_t resident = 0;                   // blocks, or clusters, on SMs
    uint64_t parked_bytes = 0;               // state to bring back
    uint64_t saving_bytes = 0;               // state to bring out
    uint32_t preempt_seen = 0, sm_seen = 0;  // of the channel's control words
    uint64_t leaving_since_ns = 0;
    SmSet allowed;
    bool has_work() const { return !active.empty() || !ready.empty(); }
  };
  struct Resident {
    GridRef grid;
    // Made when the block first runs, used for one block of the grid after another.
    std::unique_ptr<exec::Block> block;
    uint64_t index = 0;         // of the block, or cluster, in the grid
    std::vector<uint32_t> sms;  // of each of its blocks
    bool begun = false;         // started in `block`
    bool running = false;       // a thread is in its slice
    bool waiting = false;       // its last slice only polled
    bool claimed = false;       // mps: the SMs are claimed for it
    bool evict = false;         // they are not its any more
    size_t at = 0;              // its place in residents_
  };
  // Time on an SM by context.
  struct Stay {
    unsigned slot;
    uint32_t blocks;
    uint64_t since_ns;
  };
  struct Sm {
    uint32_t threads = 0, registers = 0, shared_bytes = 0, blocks = 0;
    std::vector<Stay> stays;
    // mps: until when it is left to others that found no room, and from when on it is again.
    uint64_t left_until_ns = 0, keep_until_ns = 0;
    Rank left_to;  // the first of them; what is before that does not wait
  };

  uint64_t global_timer_ns() override;
  void print(std::string_view text) override;
  void assertion_failed(std::string_view line) override;

  // grid_runner.cc. All that takes a Lock gives it up for a while.
  void start_threads();
  void thread_main();
  void wait_for_stall();
  void requeue(Resident* resident);
  void run_slice(Lock& lock, Resident* resident);
  bool begin(Resident& resident);
  bool may_continue(const Resident& resident) const;
  void end_block(Lock& lock, Resident* resident);
  void end_grid(Lock& lock, const GridRef& grid);

  // grid_runner_turn.cc: whose turn it is.
  void poll_control_words(Lock& lock);
  void advance(bool out_of_turn = false);
  void activate(unsigned slot);
  void settle(unsigned slot);
  void queue_up(unsigned slot);
  void arrive(Lock& lock);
  void begin_running(unsigned slot);
  void begin_leaving(Lock& lock, unsigned slot, bool lost);
  void finish_leaving(Lock& lock, unsigned slot);
  void wait_for_turn(Lock& lock);
  void pass_time(Lock& lock, uint64_t ns);
  void read_sm_set(unsigned slot);

  // grid_runner_place.cc: which block where.
  void place();
  bool may_place(const GridRef& grid);
  bool gathers(const GridRef& grid) const;
  void starve(const SmSet& on, const Grid& grid);
  bool end_gathering();
  bool place_one(const GridRef& grid);
  bool find_room(const Grid& grid, SmSet allowed, std::vector<uint32_t>& sms, SmSet& refused);
  bool fits(uint32_t sm, const Grid& grid, uint32_t more) const;
  bool claim_sm(uint32_t sm, const Grid& grid);
  static SmClaim claim_of(const Grid& grid);
  static Rank rank_of(const Grid& grid) { return {urgency_of(grid.priority), grid.order}; }
  void enter_sm(const Resident& resident, uint32_t sm);
  void leave_sm(const Resident& resident, uint32_t sm);
  void leave_sms(Resident& resident);
  bool is_preempted(const Resident& resident) const;
  void park(Resident* resident);
  void park_preempted(unsigned slot);
  void renew_claims();
  void destroy(Resident* resident);

  SharedGpu& gpu_;
  SmLimits limits_;
  const uint32_t sms_;
  const uint32_t thread_count_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::array<Client, kMaxContexts> clients_;
  std::vector<Sm> sm_;
  std::vector<std::unique_ptr<Resident>> residents_;
  RunQueue<Resident*> run_queue_;
  // The context that has the engine (not mps).
  struct Turn {
    int holder = -1;         // its slot; -1: none of ours
    bool arriving = false;   // it has it, but a thread has to wait for the switch
    uint64_t switch_ns = 0;  // so long
    bool used = false;       // it has started a kernel since it got the engine
  } turn_;
  bool standing_ = false;              // a thread waits in the GPU's queue
  uint64_t absent_checked_ns_ = 0;     // that thread's: when it looked last for who is absent
  SmSet starved_;                      // mps: where blocks found no room because of others
  SharedGpu::Urgencies starved_at_{};  // and how urgent the most urgent of them are
  Rank starved_first_;                 // the first of all of them
  // Cooperative grids of which only some blocks are on SMs, and the SMs of all of them, on which no
  // other's are placed meanwhile. No two have an SM in common.
  std::vector<GridRef> gathering_;
  SmSet held_;
  bool unplaced_ = false;           // place() may have something to do
  int blocked_priority_ = INT_MAX;  // of the most urgent grid that finds no room
  uint32_t first_client_ = 0;       // whose blocks are placed first next time
  uint32_t claims_epoch_ = 0;
  unsigned queued_ = 0;  // clients that are kQueued
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::softgpu
