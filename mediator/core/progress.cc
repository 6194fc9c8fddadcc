// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/progress.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace sluice::core {

namespace {

// A launch that takes longer than this is not one that anybody predicts.
constexpr uint64_t kLongestNs = 3'600'000'000'000;
// What follows the durations' lines in the text.
constexpr std::string_view kCosts = "sluice-preemption-costs 1\n";

}  // namespace

// A private copy of the fields that are read.
struct Progress::Record {
  uint32_t state, total, done, fetched, evictions, kernel;
  uint64_t id, start_ns, left_ns;
  policy::LaunchShape shape;

  static uint32_t state_of(const sluice_launch_record& r) {
    return __atomic_load_n(&r.state, __ATOMIC_ACQUIRE);
  }
  static bool waits_or_runs(uint32_t state) {
    return state >= SLUICE_LAUNCH_PREP && state <= SLUICE_LAUNCH_TOEVICT;
  }
  Record(const sluice_launch_records& records, size_t i) {
    const sluice_launch_record& r = records.records[i];
    const sluice_launch_shape& s = records.shapes[i];
    const auto u32 = [](const uint32_t& v) { return __atomic_load_n(&v, __ATOMIC_ACQUIRE); };
    const auto u64 = [](const uint64_t& v) { return __atomic_load_n(&v, __ATOMIC_RELAXED); };
    state = u32(r.state);
    total = u32(r.tasks_total);
    done = std::min(u32(r.tasks_done), total);
    fetched = std::clamp(u32(r.tasks_fetched), done, total);
    evictions = u32(r.evictions);
    kernel = SLUICE_RECORD_KERNEL(u32(r.opaque));
    id = u64(r.launch_id);
    start_ns = u64(r.start_ns);
    left_ns = u64(r.left_ns);
    shape = {.grid_blocks = total,
             .block_threads = u32(s.block_threads),
             .shared_bytes = u32(s.shared_bytes),
             .input_bytes = u64(s.input_bytes)};
  }
  // The GPU's own time from the first task's start until the last block left; 0: not known.
  uint64_t ran_ns() const {
    return start_ns == 0 || left_ns <= start_ns || left_ns - start_ns > kLongestNs
               ? 0
               : left_ns - start_ns;
  }
};

void Progress::learn(uint32_t session, const sluice_launch_records& records) {
  Session& known = sessions_[session];
  for (size_t i = 0; i < SLUICE_REPORT_RECORDS; ++i) {
    if (Record::state_of(records.records[i]) == SLUICE_LAUNCH_FREE) continue;
    const Record r(records, i);
    Seen& seen = known.records[i];
    if (seen.launch_id != r.id) seen = {.launch_id = r.id, .evictions = 0, .done = false};
    if (r.evictions != seen.evictions) {
      seen.evictions = r.evictions;
      if (evicted_now_.size() < kMaxKernelsEvicted &&
          std::find(evicted_now_.begin(), evicted_now_.end(), r.kernel) == evicted_now_.end())
        evicted_now_.push_back(r.kernel);
      // Later it also waited.
      if (r.evictions == 1 && r.state == SLUICE_LAUNCH_READY && r.done > 0 && r.ran_ns() != 0 &&
          (rates_.size() < kMaxKernelsLearnt || rates_.contains(r.kernel)))
        rates_[r.kernel].observe(r.done, r.ran_ns());
    }
    if (r.state != SLUICE_LAUNCH_DONE || seen.done) continue;
    seen.done = true;
    // An evicted launch also waited.
    if (r.evictions != 0 || r.ran_ns() == 0 || r.total == 0) continue;
    if (model_.size() >= kMaxKernelsLearnt && model_.samples(r.kernel) == 0) continue;
    model_.learn(r.kernel, r.shape, r.ran_ns());
  }
}

void Progress::learn_evictions(uint64_t count, uint64_t sum_ns) {
  evictions_ += count;
  evictions_ns_ += sum_ns;
  if (evictions_ > 0 && !evicted_now_.empty()) {
    for (const uint32_t kernel : evicted_now_)
      if (costs_.size() < kMaxKernelsLearnt || costs_.contains(kernel))
        costs_[kernel].observe(std::min(evictions_ns_ / evictions_, kLongestNs));
  } else if (!unmatched_ && (evictions_ > 0 || !evicted_now_.empty())) {
    unmatched_ = true;  // a worker counts an eviction a moment after its launch has left
    return;
  }
  evicted_now_.clear();
  evictions_ = evictions_ns_ = 0;
  unmatched_ = false;
}

void Progress::add_record(const Record& r, ProgressSums* sums) const {
  if (r.total == 0) return;
  ++sums->launches;
  sums->tasks_total += r.total;
  sums->tasks_fetched += r.fetched;
  sums->tasks_done += r.done;
  const double left = 1.0 - static_cast<double>(std::max(r.done, r.fetched)) / r.total;
  double whole_ns = -1;
  if (const auto predicted = model_.predict(r.kernel, r.shape))
    whole_ns = static_cast<double>(*predicted);
  else if (const auto rate = rates_.find(r.kernel); rate != rates_.end())
    whole_ns = rate->second.sm_ns_per_task() * r.total;
  if (whole_ns >= 0) {
    ++sums->predicted;
    sums->longest_ns =
        std::max(sums->longest_ns,
                 static_cast<uint64_t>(std::min(whole_ns, static_cast<double>(kLongestNs))));
    sums->remaining_ns +=
        static_cast<uint64_t>(std::min(whole_ns, static_cast<double>(kLongestNs)) * left);
  }
  if (const auto cost = costs_.find(r.kernel); cost != costs_.end())
    sums->preempt_ns = std::max(sums->preempt_ns, cost->second.mean_ns());
}

void Progress::add(const sluice_launch_records& records, ProgressSums* sums) const {
  for (size_t i = 0; i < SLUICE_REPORT_RECORDS; ++i)
    if (const Record r(records, i); Record::waits_or_runs(r.state)) add_record(r, sums);
}

LaunchHints Progress::read(uint32_t session, const sluice_launch_records& records,
                           uint32_t demand) {
  Session& known = sessions_[session];
  ProgressSums sums;
  const uint32_t from = known.first;
  demand = std::min(demand, kMaxLaunchesRead);
  for (uint32_t n = 0; n < SLUICE_REPORT_RECORDS && sums.launches < demand; ++n) {
    const uint32_t i = (from + n) % SLUICE_REPORT_RECORDS;
    if (!Record::waits_or_runs(Record::state_of(records.records[i]))) continue;
    if (sums.launches == 0) known.first = i;
    if (const Record r(records, i); Record::waits_or_runs(r.state)) add_record(r, &sums);
  }
  return {.predicted = sums.predicted,
          .remaining_ns = sums.remaining_ns,
          .longest_ns = sums.longest_ns,
          .preempt_ns = sums.preempt_ns};
}

std::string Progress::save() const {
  std::string text = model_.save();
  if (costs_.empty()) return text;
  text += kCosts;
  std::vector<uint32_t> kernels;
  for (const auto& [kernel, cost] : costs_) kernels.push_back(kernel);
  std::sort(kernels.begin(), kernels.end());
  for (const uint32_t kernel : kernels) {
    const policy::PreemptionCost& cost = costs_.at(kernel);
    text += std::to_string(kernel) + ' ' + std::to_string(cost.count()) + ' ' +
            std::to_string(cost.mean_ns()) + '\n';
  }
  return text;
}

Result<void> Progress::restore(std::string_view text) {
  policy::DurationModel model;
  std::unordered_map<uint32_t, policy::PreemptionCost> costs;
  const size_t split = text.find(kCosts);
  if (auto read = model.restore(text.substr(0, split)); !read) return read;
  if (split != text.npos) {
    text.remove_prefix(split + kCosts.size());
    for (size_t line = 1; !text.empty(); ++line) {
      const std::string_view row = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(row.size() + 1, text.size()));
      uint64_t n[3] = {};  // kernel, count, mean
      const char* at = row.data();
      const char* const end = at + row.size();
      bool good = true;
      for (int i = 0; i < 3 && good; ++i) {
        if (i > 0) good = at != end && *at++ == ' ';
        const auto [stop, error] = std::from_chars(at, end, n[i]);
        good = good && error == std::errc();
        at = stop;
      }
      if (!good || at != end || n[0] > 0x7fffffff || n[1] == 0 || n[2] > kLongestNs ||
          costs.contains(static_cast<uint32_t>(n[0])))
        return Error{EINVAL, "preemption costs, line " + std::to_string(line) +
                                 ": a kernel, how often it was evicted and the "
                                 "mean in ns were expected, each kernel once"};
      costs[static_cast<uint32_t>(n[0])].restore(n[1], n[2]);
    }
  }
  if (model.size() > kMaxKernelsLearnt || costs.size() > kMaxKernelsLearnt)
    return Error{EINVAL, "it has " + std::to_string(std::max(model.size(), costs.size())) +
                             " kernels; at most " + std::to_string(kMaxKernelsLearnt) +
                             " are kept"};
  model_ = std::move(model);
  costs_ = std::move(costs);
  return {};
}

void Progress::take_knowledge(Progress&& other) {
  model_ = std::move(other.model_);
  costs_ = std::move(other.costs_);
}

}  // namespace sluice::core
