// SPDX-License-Identifier: Apache-2.0
// GpuWitness: sluiced's own context on an NVIDIA GPU, by which it finds out whether the GPU goes
// round (policies/accounting/overrun_proof.h says what that proves). A process that the spawner
// starts like a worker, without a guest (worker/witness/witness.h).
//
//   state      it means                              next
//   kNone      there is none; why() says why         after a growing pause, if the switch log can
//                                                    be read: kStarting
//   kStarting  its process makes a context           Ready: kRests
//   kRests     it has nothing to do                  ask(): kAsked
//   kAsked     it is to launch its kernel            Tried: kWaits
//   kWaits     the kernel waits for the GPU          Tried: the same; Served: kRests
//   from each: it ends, says what it may not, or nothing for kSilentMs while it should: kNone
//
// Owned by WorkerTimeSlices; sluiced's one thread. Nothing here waits for the witness.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "mediator/io/fd_watch.h"
#include "mediator/io/spawner_link.h"
#include "mediator/io/worker_process.h"
#include "policies/accounting/overrun_proof.h"

namespace sluice {

class GpuWitness : private io::WorkerProcess::Owner {
 public:
  using Say = accounting::OverrunProof::Say;
  struct Settings {
    bool nvidia = true;
    std::string library;
    std::string soft_gpu_file;  // for tests
    // Why the GPU's switch log cannot be read now; empty: it can.
    std::function<std::string()> no_log;
    // What the witness says, or is known of it. kGone: there is one now, another one, or none.
    std::function<void(Say)> hear;
    uint64_t again_ms = 1000;  // the first pause; twice as long each time, kMostAgainMs at most
  };
  enum class State : uint8_t { kNone, kStarting, kRests, kAsked, kWaits };

  // Begins at once. `spawner` outlives it.
  GpuWitness(boost::asio::io_context& io, io::SpawnerLink& spawner, Settings settings);
  ~GpuWitness();

  // Whether the GPU goes round now. Nothing if there is no witness, if it is at it, or was asked in
  // the last kAskMs.
  void ask(uint64_t now_ns);

  State state() const { return state_; }
  // Of its process; 0: there is none that could be asked.
  uint32_t process() const;
  // Why nobody could be asked; empty: somebody can.
  std::string why() const { return process() ? "" : why_; }

 private:
  static constexpr uint64_t kAskMs = 40, kMostAgainMs = 60'000, kStartMs = 60'000,
                            kSilentMs = 30'000, kStableMs = 60'000;
  void start();
  void go(State state);
  void wait_for_answer(uint64_t ms);
  void end(const std::string& why);
  void none(const std::string& why);
  void on_worker_message(const worker_protocol::Message& message) override;
  void on_worker_bad(const std::string& why) override { end(why); }
  void on_worker_hangup() override { end("it hung up"); }
  void on_worker_xid(int number) override;
  void on_worker_starved(uint64_t) override {}
  void on_worker_exit(const io::WorkerExit& exit) override;

  boost::asio::io_context& io_;
  io::SpawnerLink& spawner_;
  const Settings settings_;
  State state_ = State::kNone;
  std::string why_ = "it has not begun", logged_;
  std::unique_ptr<io::WorkerProcess> process_;
  io::Timer again_, silent_;
  uint64_t again_ms_, asked_ns_ = 0, ready_ns_ = 0, request_ = 0;
};

}  // namespace sluice
