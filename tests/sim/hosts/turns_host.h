// SPDX-License-Identifier: Apache-2.0
// TurnsHost: core::Scheduler in virtual time where turns are priorities, with workers and a GPU as
// an H100 under MPS is (docs/decisions/0011-turns.md). For tests only; one thread; determined by
// its settings.
//
// The GPU runs one launch at a time, on all SMs: that of the highest level, of equals the one that
// came first. One of a higher level begins when half a block's time is over; the launch before it
// goes on where it was when nothing is above it any more.
//
// A worker has a stream. A launch that is expected to take at most `whole_ns` is queued as it is,
// one at a time, or as many as take `together_ns`; a longer one in windows, two at a time, until
// the gate closes or its generation is recalled.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "mediator/core/scheduler.h"
#include "tests/sim/hosts/virtual_host.h"

namespace sluice::sim {

// What a vGPU's program does.
struct TurnsProgram {
  uint64_t launch_ns = 5'000'000;
  uint64_t block_ns = 50'000;
  uint32_t queued = 2;    // launches that it keeps queued; 0: it waits for each ...
  uint32_t chain = 0;     // it queues so many at once and waits for the last; 0: it does not
  uint64_t pause_ns = 0;  // ... and does nothing for so long
  bool random = false;    // ... on average: the chains come as a Poisson process would have them
  bool opaque = false;    // its kernels have no windows
  uint64_t start_ns = 0;
  uint64_t wakes_ns = 0;  // its worker sleeps, and wakes so long after its gate has changed
};

struct TurnsCosts {
  uint64_t start_ns = 5'000;     // from the worker's call to the GPU
  uint64_t poll_ns = 8'000;      // from a launch's end to the worker
  uint64_t ring_ns = 6'000;      // from the worker to sluiced
  uint64_t gate_ns = 6'000;      // from sluiced to the worker
  uint64_t program_ns = 25'000;  // from the worker to the program and back with the next launch
  uint64_t whole_ns = 10'000'000;
  uint64_t window_ns = 250'000;
  uint64_t together_ns = 500'000;
  uint64_t lead_ns = 100'000;
  uint64_t gap_ns = 0;  // between two launches of a stream, in which others' blocks begin;
                        // 0: none, as where they are filled
};

class TurnsHost final : public VirtualHost {
 public:
  TurnsHost(const core::SchedulerConfig& config, const TurnsCosts& costs);

  core::VgpuId add(const policy::VgpuShare& share, const TurnsProgram& program);
  core::VgpuId add(uint32_t weight, const TurnsProgram& program) {
    return add(policy::VgpuShare{.weight = weight}, program);
  }
  // From its next launch on, which it waits for, as for those before.
  void change(core::VgpuId v, const TurnsProgram& program) { all_[v].program = program; }

  // Time for which the GPU ran its launches; time from queueing a launch until its program knows
  // that it has ended, of each; of a chain as a whole.
  uint64_t ran_ns(core::VgpuId v) const { return all_[v].ran_ns; }
  const std::vector<uint64_t>& took_ns(core::VgpuId v) const { return all_[v].took_ns; }
  uint64_t idle_ns() const { return idle_ns_; }

 private:
  // In the hardware's queue.
  struct Flight {
    uint32_t generation = 0, level = 0;
    uint64_t rest_ns = 0;
    uint64_t at_ns = 0;  // since then the first of its stream, where it may begin
    bool last = true;    // with it a launch of the program ends
    bool ready = false, ended = false;
  };
  struct Tenant {
    core::SessionId session = 0;
    TurnsProgram program;
    uint64_t grant = 0, evict = 0;
    uint32_t demand = 0, left_generation = 0;
    uint64_t in_flight_ns = 0;  // since then
    uint64_t flight_ns = 0;     // before
    uint64_t launches = 0, done = 0;
    std::deque<uint64_t> queued_at;
    uint64_t unsent_ns = 0;  // of the launch that is sent in windows
    uint32_t sent = 0;       // launches in flight, whole ones
    std::deque<Flight> flights;
    uint64_t ran_ns = 0;
    std::vector<uint64_t> took_ns;
  };

  core::ReportSnapshot report_of(core::VgpuId v, core::SessionId s) override;
  void apply(const core::Action& action) override;
  void advance(uint64_t time_ns) override;
  void ring(core::VgpuId v);
  void queue_launch(core::VgpuId v);
  void worker(core::VgpuId v);
  void send(core::VgpuId v, uint64_t ns, bool last);
  void note_if_left(core::VgpuId v);
  void flight_ended(core::VgpuId v);
  void launch_done(core::VgpuId v);
  void program_knows(core::VgpuId v, uint64_t queued_at);
  bool expected_whole(const Tenant& t) const { return t.program.launch_ns <= costs_.whole_ns; }

  uint64_t rest_ns(const Flight& f) const { return f.rest_ns; }
  void reconsider();
  Flight* head(core::VgpuId v);

  TurnsCosts costs_;
  std::mt19937 random_;
  uint64_t gpu_epoch_ = 0, idle_ns_ = 0;
  std::vector<Tenant> all_;  // by VgpuId
  core::VgpuId running_ = policy::kNoVgpu, next_ = policy::kNoVgpu;
};

}  // namespace sluice::sim
