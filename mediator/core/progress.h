// Progress: what the launch records of a session's report area (abi/preempt.h) say of its launches: how
// far they are, and, by what earlier ones of the same kernel took, for how long they will go on.
//
// Pure; one of them per vGPU, owned by sluiced's engine, one thread; time comes from the records. The
// records are a worker's and its kernels' words: every number is bounded, nothing is decided by them.
// They are for people (`sluicectl stats`) and for policies that ask for predictions (policies/model).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "abi/stub.h"
#include "policies/model/duration_model.h"

namespace sluice::core {

// Kernels of one vGPU whose durations are learnt; a program that invents more keeps these.
inline constexpr size_t kMaxKernelsLearnt = 1024;

struct ProgressSums {
  uint32_t launches = 0;  // rewritten ones, given to the GPU at least once and not done
  uint64_t tasks_total = 0, tasks_fetched = 0, tasks_done = 0;  // of these
  uint64_t remaining_ns = 0;  // that they will run, each alone on the GPU, as far as it is predicted
  uint32_t predicted = 0;     // of the launches
};

class Progress {
 public:
  // Learns from the launches that are done. `session`: not the same for two sessions of the vGPU.
  void learn(uint32_t session, const sluice_report_area& report);
  // Adds up those that are not. Reads nothing twice, so a worker that writes meanwhile gives odd sums at
  // worst.
  void add(const sluice_report_area& report, ProgressSums* sums) const;
  void forget(uint32_t session) { learnt_.erase(session); }

  // What was learnt, as text and back (DurationModel::save, restore). An error names the line and leaves
  // what is known as it was; so does text with more than kMaxKernelsLearnt kernels.
  std::string save() const { return model_.save(); }
  Result<void> restore(std::string_view text);

  uint64_t learnt() const { return model_.size(); }
  double error(uint32_t kernel) const { return model_.error(kernel); }

 private:
  policy::DurationModel model_;  // whole-GPU ns; keys: SLUICE_RECORD_KERNEL
  std::unordered_map<uint32_t, uint64_t> learnt_;  // by session: the newest launch id learnt from
};

}  // namespace sluice::core
