// SPDX-License-Identifier: Apache-2.0
// Progress: what a session's launch records (abi/preempt.h) say of its launches: how
// far they are, and, by what earlier ones of the same kernel took, for how long they will go on,
// and what evicting them costs.
//
// Pure; one of them per vGPU, owned by sluiced's engine, one thread; time comes from the records.
// The records are a worker's and its kernels' words: every number is bounded, nothing is decided by
// them alone. They are for people (`sluicectl stats`) and for policies that ask for predictions
// (sharing/launches.h). What evictions cost is sluiced's own measure; whose kernels they met is the
// records' word.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "abi/stub.h"
#include "mediator/core/scheduler.h"
#include "policies/model/duration_model.h"

namespace sluice::core {

// Kernels of one vGPU whose durations are learnt; a program that invents more keeps these.
inline constexpr size_t kMaxKernelsLearnt = 1024;
// Launches of a session that read() adds up; more would delay all that wait for sluiced's answer.
// The rest counts as not predicted.
inline constexpr uint32_t kMaxLaunchesRead = 128;
// Kernels of a vGPU to which one read's evictions are put down; more are a hostile worker's.
inline constexpr size_t kMaxKernelsEvicted = 64;

struct ProgressSums {
  uint32_t launches =
      0;  // rewritten ones that are queued or under way, as far as there are records for them
  uint64_t tasks_total = 0, tasks_fetched = 0, tasks_done = 0;  // of these
  uint64_t remaining_ns =
      0;                    // that they will run, each alone on the GPU, as far as it is predicted
  uint32_t predicted = 0;   // of the launches
  uint64_t longest_ns = 0;  // of these, whole
  uint64_t preempt_ns = 0;  // the longest that evicting one takes; 0: none ever was
};

class Progress {
 public:
  // Learns from the launches that are done, or were evicted. `session`: not the same for two
  // sessions of the vGPU; its records are distinguished by their launches' numbers.
  void learn(uint32_t session, const sluice_launch_records& records);
  // This many evictions of the vGPU have taken this long in sum, by sluiced's clock, since the last
  // call: what evicting those kernels cost that learn() saw evicted meanwhile (or sees until the
  // next call). To be called after it.
  void learn_evictions(uint64_t count, uint64_t sum_ns);
  // Adds up those that are not done. Reads nothing twice, so a worker that writes meanwhile gives
  // odd sums at worst.
  void add(const sluice_launch_records& records, ProgressSums* sums) const;
  // The same of a session that says that it has `demand` launches queued: looks no further than for
  // this many, beginning where it found the first one the last time.
  LaunchHints read(uint32_t session, const sluice_launch_records& records, uint32_t demand);
  void forget(uint32_t session) { sessions_.erase(session); }

  // What was learnt, as text and back: DurationModel::save(), then a line for each kernel that was
  // evicted. An error names the line and leaves what is known as it was; so does text with more
  // than kMaxKernelsLearnt kernels.
  std::string save() const;
  Result<void> restore(std::string_view text);
  // Takes over what another one knows of kernels, in place of its own. Its sessions stay.
  void take_knowledge(Progress&& other);

  uint64_t learnt() const { return model_.size(); }
  uint64_t evicted() const { return costs_.size(); }  // kernels
  double error(uint32_t kernel) const { return model_.error(kernel); }

 private:
  struct Seen {
    uint64_t launch_id = 0;
    uint32_t evictions = 0;
    bool done = false;
  };
  struct Session {
    std::array<Seen, SLUICE_REPORT_RECORDS> records{};
    uint32_t first = 0;  // where read() found something
  };
  struct Record;
  void add_record(const Record& r, ProgressSums* sums) const;

  policy::DurationModel model_;  // whole-GPU ns; keys: SLUICE_RECORD_KERNEL
  std::unordered_map<uint32_t, policy::TaskRate>
      rates_;  // of kernels that were evicted; not kept between runs
  std::unordered_map<uint32_t, policy::PreemptionCost> costs_;
  std::unordered_map<uint32_t, Session> sessions_;
  std::vector<uint32_t> evicted_now_;  // kernels, until it is known what it cost
  uint64_t evictions_ = 0, evictions_ns_ = 0;
  bool unmatched_ = false;
};

}  // namespace sluice::core
