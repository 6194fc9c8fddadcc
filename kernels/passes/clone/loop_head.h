// SPDX-License-Identifier: Apache-2.0
// The code of the persistent loop, the same for every pass: how a worker gets its next tasks, sees
// an eviction, and leaves.
//
//   ENTRY   block 0 may be the proxy; a worker whose first task is that of its own number computes
//           the index and runs it at once
//   BODY    the original body, with the task's index for %ctaid; returns go to TAIL
//   TAIL    what the body leaves behind is cleaned up; every thread steps to the batch's next task
//           by itself, after the last one to HEAD
//   HEAD    leader: the evict word; the rest of its chunk or a new one, whose size follows from how
//           long the last one took; a *batch* of it is broadcast through one of two slots. A chunk
//           is long (15 us, so that drawing tickets costs little), a batch half of it and a task
//           (it bounds the latency)
//   WAIT    the other warps: one barrier, then the slot (rule two-slots: two slots make one barrier
//           enough, because slot k is written again only after the next barrier)
// and behind these what is rare or last, so that the rest is short and stands together:
//   SETUP   a predecessor that is not done sends everybody home; a resumed worker takes up the rest
//           that it left
//   SEEN    evicted: what is left of the chunk goes on the left-over list (PUSH)
//   NONE    leader: adds what this worker has finished; the last block out writes the record
//   PROXY   copies the evict word from host memory to the control block until nothing is left to do
//
// The leader's own state lies in shared memory, so that one register (%~rem: tasks left in the
// batch, the slot, whether the warp leads) and the task's index are all that lives across the body.
//
// In order (rule in-order: tasks that wait for lower ones): a chunk is one ticket, the evict word
// is polled before it is drawn (rule left-over), so that no ticket is ever given back, and there
// is no left-over list.
//
// Owner: one pass over one entry, one thread. It knows nothing of the body. Everything that it
// writes speaks the protocol of abi/preempt.h with the launcher (mediator/worker).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/passes/analysis/author_points.h"
#include "kernels/passes/clone/emitter.h"

namespace sluice::passes {

// What the body asks of its loop.
struct LoopOptions {
  std::array<bool, 3> reads_ctaid{};  // x, y, z: only these are computed and broadcast
  // Name of an extern shared array: the slots are the last bytes of dynamic shared memory. Empty:
  // they are static.
  std::string_view dynamic_shared;
  // Lanes of a warp may come to the tail at different times: the loop's barriers are then of the
  // form that is defined for them.
  bool loose_lanes = false;
  bool has_warp_sync = false;  // the ISA has shfl.sync (6.0)
  // Tasks of one block share something, its shared memory or its barriers: a barrier stands between
  // the tasks of a batch. False only where a kernel has neither: then its warps run apart.
  bool separate = true;
  // Tasks wait for lower-numbered ones (rule in-order).
  bool in_order = false;
  // A block runs one task and ends, but may leave in the task's middle, to be resumed (resume.cc).
  // Such a body never comes to the tail.
  bool resumable = false;
  unsigned barrier = 0;                  // number of the loop's barrier
  std::vector<std::string> before_task;  // lines at BODY, run by every thread before every task
  std::vector<std::string> clean_up;     // lines for the tail, run by every thread (rule clean-up)
  // Lines behind those, when all threads of the block have come to the tail: run by all, with
  // %~lead set for the one that is to do what must be done once.
  std::vector<std::string> release;
};

class LoopHead {
 public:
  LoopHead(const LoopOptions& options, Emitter& out) : options_(options), out_(out) {}

  // In front of the body: declarations, ENTRY and BODY's label. Falls through into the body.
  void write_before_body() {
    write_entry();
    write_body_begin();
  }
  // Behind the body, which may fall through into TAIL.
  void write_after_body() {
    if (options_.resumable) {
      write_end();
    } else {
      write_tail();
    }
    write_head();
    write_leave();
    write_proxy();
  }

  // What stands in place of one of the author's points; `~LEFT` and `~ENDED` lie behind the body.
  void write_author_point(const Marker& marker);

 protected:  // also of the form with one task a block (admission.h)
  bool dynamic() const { return !options_.dynamic_shared.empty(); }
  bool chunked() const { return !options_.in_order && !options_.resumable; }
  bool steps(std::size_t dimension) const;
  std::string shared(unsigned offset) const;
  // loop_head.cc
  void write_start(const std::string& skip);
  void write_index();
  void find_leader(unsigned begin);
  void share(const std::string& reg);
  void converge();
  void share_wide(const std::string& reg);
  void load_base();
  void load_control();
  void test_flag(unsigned flag) { test_flag_into("%~p", flag); }
  void test_flag_into(const std::string& predicate, unsigned flag);
  void test_predecessor(std::string_view where);
  void barrier();

  const LoopOptions& options_;
  Emitter& out_;

 private:
  void write_entry();
  void write_body_begin();
  void write_setup();
  void write_claim();
  void write_place_on_sm();
  void write_first_tickets();
  void grid_address(const std::string& reg);
  void write_slot_address();
  void divide(const std::string& quotient, const std::string& dividend, const std::string& magic,
              int at);
  void subtract_product(const std::string& rest, const std::string& dividend,
                        const std::string& quotient, const std::string& divisor);
  // loop_draw.cc
  void write_tail();
  void write_head();
  void write_evict_test();
  void write_seen(std::string_view evicted);
  void evict_address();
  void load_evict_word();
  void write_draw();
  void write_resolve();
  void write_measure();
  void write_batch();
  void write_wait();
  // loop_exit.cc
  void write_push();
  void write_scan();
  void write_leave();
  void write_account(std::string_view end, const std::string& labels = "~");
  void write_exit(const std::string& over, const std::string& label);
  void count_out(const std::string& over, const std::string& label);
  void reset_counts();
  void write_record(const std::string& over, const std::string& label);
  void write_proxy();
  void write_poll();
  void report_progress();
  // resume.cc
  void write_duty(const std::string& only);
  void write_pop();
  void write_fresh();
  void write_end();
  void write_state_address(std::uint64_t bytes);

  bool alone_ = false;  // one thread does what is written, not the leader's warp
};

}  // namespace sluice::passes
