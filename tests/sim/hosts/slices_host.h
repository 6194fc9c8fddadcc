// SPDX-License-Identifier: Apache-2.0
// SlicesHost: core::Scheduler in virtual time where contexts share the GPU by the hardware's time
// slices, with workers and a GPU as an H200 without MPS is (docs/decisions/0013-strict-slices.md).
// For tests only; one thread; determined by its settings.
//
// The GPU has one context at a time and goes round among those that have launches in its queues: to
// the next one when the slice is over or nothing is left: what runs is saved (its state_ns), no
// context is there (gap_ns), and the next is restored (its state_ns). A slice is renewed while
// nobody else has work. One that is set anew stops whoever runs, and the GPU begins with the first
// of its list again (the switch log of an H200, 32 tenants): who is last in it has nothing if that
// happens more often than a round takes.
// What each has used is found from the switches (accounting::EngineUse), log_ns late.
//
// A vGPU has a program, whose number is the vGPU's, or several of them: those that are added last.
// A worker has a stream, and in flight what worker::SliceQueue allows; kernels cannot be evicted.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "mediator/core/scheduler.h"
#include "mediator/worker/streams/rhythm_meter.h"
#include "mediator/worker/streams/slice_queue.h"
#include "policies/accounting/engine_use.h"
#include "tests/sim/hosts/virtual_host.h"

namespace sluice::sim {

// What a vGPU's program does.
struct SlicesProgram {
  uint64_t launch_ns = 1'000'000;
  uint32_t queued = 0;    // launches that it keeps queued; 0: it waits for each ...
  uint64_t pause_ns = 0;  // ... and does nothing for so long
  bool random = false;    // ... launches come as a Poisson process would have them, so far apart
  uint64_t start_ns = 0;
  uint64_t state_ns = 110'000;  // to save or restore its context; of small launches 30'000
  // Of a worker that was taken over:
  uint64_t claim_ns = 0;       // it launches nothing, and says for so long that it has work
  uint64_t says_waits_ns = 0;  // each so often its worker counts a wait that there was not
  bool hides_waits = false;    // it does not count its waits
};

struct SlicesCosts {
  uint64_t gap_ns = 85'000;      // between two contexts
  uint64_t set_ns = 150'000;     // until a worker has set one
  uint64_t log_ns = 10'000'000;  // how late, and how often, the log tells
  uint64_t start_ns = 9'000;     // from the worker's call to the GPU
  uint64_t poll_ns = 8'000;      // from a launch's end to the worker
  uint64_t ring_ns = 10'000;     // from the worker to sluiced
  uint64_t gate_ns = 20'000;     // from sluiced to the worker
  uint64_t program_ns = 20'000;  // from the worker to the program and back with the next launch
};

class SlicesHost final : public VirtualHost {
 public:
  SlicesHost(const core::SchedulerConfig& config, const SlicesCosts& costs);
  // sluiced's settings for an NVIDIA GPU.
  static core::SchedulerConfig nvidia();

  core::VgpuId add(const policy::VgpuShare& share, const SlicesProgram& program);
  // One more program of `vgpu`, after all vGPUs were added.
  void add_session(core::VgpuId vgpu, const SlicesProgram& program);
  void set(core::VgpuId v, const policy::VgpuShare& share);

  // Time for which the GPU ran its launches; time from when a launch was to come until its program
  // knows that it has ended, of each.
  uint64_t ran_ns(core::VgpuId v) const { return all_[v].ran_ns; }
  const std::vector<uint64_t>& took_ns(core::VgpuId v) const { return all_[v].took_ns; }
  uint64_t charged_ns(core::VgpuId v) const { return all_[v].charged_ns; }
  uint64_t switches() const { return switches_; }
  uint64_t slices_set() const { return slices_set_; }

 private:
  struct Flight {
    uint64_t rest_ns = 0;
    bool ready = false;
  };
  using Program = uint32_t;  // its place in all_
  static constexpr Program kNoProgram = ~0u;
  struct Tenant {
    core::VgpuId vgpu = 0;
    core::SessionId session = core::kNoSession;
    SlicesProgram program;
    uint64_t grant = 0;
    uint32_t demand = 0, left_generation = 0, idles = 0;
    uint64_t in_flight_ns = 0, launches = 0, done = 0;
    uint32_t sent = 0;
    std::deque<uint64_t> queued_at;
    std::deque<uint64_t> waiting;  // of a random one: those that are to come once it has waited
    bool waits = false;
    worker::SliceQueue queue{32};
    worker::RhythmMeter rhythm;
    std::deque<Flight> flights;
    uint64_t slice_ns = 2'000'000, ran_ns = 0, charged_ns = 0;
    std::vector<uint64_t> took_ns;
  };
  struct Record {
    uint64_t time_ns;
    uint32_t worker;
    bool start;
  };

  core::ReportSnapshot report_of(core::VgpuId v, core::SessionId s) override;
  void apply(const core::Action& action) override;
  void advance(uint64_t time_ns) override;
  Program program_of(core::SessionId s) const;
  void claim(Program v);
  void ring(Program v);
  void tell_log();
  void arrive(Program v);
  void say_waits(Program v);
  void queue_launch(Program v, uint64_t since_ns);
  void claim_only(Program v);
  void worker(Program v);
  void note_if_left(Program v);
  void flight_ended(Program v);

  bool has_work(Program v) const {
    return !all_[v].flights.empty() && all_[v].flights.front().ready;
  }
  Program next_with_work() const;
  void reconsider();
  void switch_to(Program v, bool saves);

  SlicesCosts costs_;
  accounting::EngineUse use_{accounting::EngineUse::Config{}};
  std::mt19937 random_;
  uint64_t gpu_epoch_ = 0, switches_ = 0, slices_set_ = 0;
  std::vector<Tenant> all_;  // by Program
  std::vector<Record> records_;
  std::mt19937 order_;
  std::vector<Program> list_;  // in which the GPU goes round
  bool begins_anew_ = false;
  Program resident_ = kNoProgram;
  uint64_t runs_from_ns_ = 0;  // its work goes on from then
  uint64_t slice_ends_ns_ = 0;
};

}  // namespace sluice::sim
