// SPDX-License-Identifier: Apache-2.0
// SwitchLog: GPU time per vGPU from the GPU's own context-switch log (records of a context's start
// and end on the compute engine; on NVIDIA the FECS event buffer, on the software GPU a log of the
// same form). Exact intervals of residency, three corrections:
//   - Residency is not use: an idle owner stays resident until another wants the engine (measured:
//     busy 9.7 of 92 ms, resident 92). So residency is intersected with the mediator's own "has
//     work".
//   - Saving and restoring a context lies within its interval (130 to 144 us at full occupancy,
//     measured; less for small contexts): a constant is taken off each interval. The 80 to 85 us
//     between one's end and the next one's start belong to nobody.
//   - Records come late (17 ms unflushed) and can be lost. Everything is settled up to a watermark:
//     the reader says up to when it has read all there was. Has-work edges are kept until the
//     watermark passes them.
//
// Lost records (a gap in the sequence numbers, a drop counter): from the last record before to the
// first after the gap nobody knows who was resident. That time is divided among the vGPUs that had
// work in it, equally, and all of it counts as error of each of them.
//
// Besides: an interval that *begins* while its vGPU has no work is use that nobody allowed
// (outside_ns); an idle owner merely stays. Time in which the engine changes hands while a vGPU has
// work is not its time (switched_ns).
//
// Pure; one thread. The reader (mediator/gpu) maps contexts to vGPUs and times to the mediator's
// clock. Nothing that a guest writes enters but through "has work", and claiming work can only
// raise a charge.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace sluice::accounting {

class SwitchLog {
 public:
  static constexpr uint32_t kNobody = 0xffffffffu;
  struct Record {
    uint64_t time_ns = 0;  // the mediator's clock
    uint32_t seq = 0;      // 16 bits count; wraps
    uint32_t vgpu = kNobody;
    bool start = false;  // the context starts on the engine; false: it ends
  };
  struct Config {
    uint64_t interval_cost_ns = 137'000;  // at full occupancy (an H200)
    uint64_t interval_cost_error_ns = 7'000;
    uint64_t stamp_error_ns = 32;  // of one time stamp
    // Between one's end and the next one's start lies a change of contexts if it is not longer than
    // this; else there was nobody.
    uint64_t longest_switch_ns = 1'000'000;
    // An interval that begins so shortly after the work's end has begun before it: edges and stamps
    // are taken in different places.
    uint64_t grace_ns = 100'000;
  };
  struct Totals {
    uint64_t used_ns = 0;  // resident, with work, less the intervals' cost
    uint64_t resident_ns = 0;
    uint64_t cost_ns = 0;   // taken off
    uint64_t error_ns = 0;  // used_ns may be wrong by as much, either way
    uint64_t intervals = 0;
    uint64_t outside_ns =
        0;  // resident by intervals that began while it had no work: used all the same
    uint64_t taken_ns = 0;     // had work while another was resident by such an interval
    uint64_t switched_ns = 0;  // had work while the engine changed from one context to another
  };

  explicit SwitchLog(const Config& config) : config_(config) {}

  // The mediator's own knowledge; times do not go backwards.
  void on_work(uint64_t now_ns, uint32_t vgpu, bool has_work);
  // In the order of the log. `seq` counts records; a jump means lost ones.
  void on_record(const Record& r);
  // Records were dropped since the last one (the buffer's own counter), besides what seq shows.
  void on_dropped();
  // All records up to `watermark_ns` have been read: totals stand there from now on.
  void settle(uint64_t watermark_ns);

  // Nothing was measured of `vgpu` so far, and it has no work.
  void forget(uint32_t vgpu);
  // The log was not read until now: the resident is not known before the next record.
  void restart(uint64_t now_ns);

  Totals totals(uint32_t vgpu) const { return vgpu < vgpus_.size() ? vgpus_[vgpu].done : Totals{}; }
  // With work, in the interval that goes on; not in totals() yet.
  uint64_t unfinished_ns(uint32_t vgpu) const {
    return vgpu < vgpus_.size() ? vgpus_[vgpu].interval_work_ns : 0;
  }
  uint64_t settled_ns() const { return settled_ns_; }
  uint64_t gaps() const { return gaps_; }
  uint64_t late() const { return late_; }  // records that came behind the watermark

 private:
  struct Edge {
    uint64_t time_ns;
    bool has_work;
  };
  struct Vgpu {
    Totals done;
    bool work = false;              // at settled_ns_
    std::deque<Edge> edges;         // after settled_ns_
    uint64_t interval_work_ns = 0;  // with work, in the interval that goes on
    uint64_t idle_since_ns = 0;     // without work since then, at settled_ns_
  };
  Vgpu& of(uint32_t vgpu);
  // Time with work of v in [from, to), of what has not been settled. Does not consume edges.
  uint64_t work_between(const Vgpu& v, uint64_t from_ns, uint64_t to_ns) const;
  void advance(uint64_t to_ns);  // settles what the state says, up to there
  void forget_edges(uint64_t to_ns);
  void end_interval(uint32_t vgpu, bool cut);

  const Config config_;
  std::vector<Vgpu> vgpus_;
  std::deque<Record> records_;  // behind the watermark
  uint32_t resident_ = kNobody;
  bool outside_ = false;    // its interval began without work
  uint64_t ended_ns_ = 0;   // the last one's end; 0: nobody's, or unknown
  bool unknown_ = true;     // who is resident: before the first record, and in a gap
  bool after_gap_ = false;  // the next record read comes after lost ones
  bool seen_ = false;
  uint32_t last_seq_ = 0;
  uint64_t settled_ns_ = 0;
  uint64_t gaps_ = 0, late_ = 0;
  std::deque<bool> gap_before_;  // for each of records_
};

}  // namespace sluice::accounting
