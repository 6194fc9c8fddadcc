// The code of the persistent loop, the same for every pass: how a worker gets its next task, sees
// an eviction, and leaves.
//
//   ENTRY   thread 0 of the block is its leader; block 0 may be the proxy; a predecessor that is
//           not done sends everybody home
//   HEAD    leader: next ticket of its chunk, or evict test, then a new chunk (R18: never the other
//           way round), broadcast through one of two slots
//   WAIT    one barrier; everybody reads the slot (R16: two slots make one barrier enough, because
//           slot k is written again only after the next barrier)
//           body, with the task's index for %ctaid; returns go to TAIL
//   TAIL    what the body leaves behind is cleaned up; back to HEAD
//   LEAVE   leader: adds what this worker has finished; the last block out writes the record
//   PROXY   copies the evict word from host memory to the control block until nothing is left to do
//
// Owner: one pass over one entry, one thread. It knows nothing of the body. Everything that it
// writes speaks the protocol of abi/preempt.h with the launcher (mediator/worker).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/passes/emitter.h"

namespace sluice::passes {

// What the body asks of its loop.
struct LoopOptions {
  std::array<bool, 3> reads_ctaid{};  // x, y, z: only these are computed and broadcast
  // Name of an extern shared array: the slots are the last bytes of dynamic shared memory. Empty:
  // they are static.
  std::string_view dynamic_shared;
  // Lanes of a warp may come to the tail at different times: the head's barrier is then of the form
  // that is defined for them.
  bool loose_lanes = false;
  std::vector<std::string> clean_up;  // lines for the tail, run by every thread (R27)
};

class LoopHead {
 public:
  LoopHead(const LoopOptions& options, Emitter& out) : options_(options), out_(out) {}

  // In front of the body: declarations and ENTRY .. WAIT. Falls through into the body.
  void write_before_body() {
    write_entry();
    write_head();
  }
  // Behind the body, which may fall through into TAIL.
  void write_after_body() {
    write_tail();
    write_leave();
    write_proxy();
  }

 private:
  bool dynamic() const { return !options_.dynamic_shared.empty(); }
  void write_entry();
  void write_head();
  void write_evict_test();
  void write_fetch();
  void write_take();
  void write_tail();
  void write_leave();
  void write_proxy();
  void test_flag_proxy();
  void test_predecessor(std::string_view where);
  void load_control();
  void load_total(const std::string& reg, const std::string& scratch);
  void divide(const std::string& quotient, const std::string& dividend, const std::string& magic,
              int at);
  void subtract_product(const std::string& rest, const std::string& dividend,
                        const std::string& quotient, const std::string& divisor);

  const LoopOptions& options_;
  Emitter& out_;
};

}  // namespace sluice::passes
