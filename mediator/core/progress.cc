#include "mediator/core/progress.h"

#include <algorithm>
#include <cerrno>

namespace sluice::core {

namespace {

// A launch that takes longer than this is not one that anybody predicts.
constexpr uint64_t kLongestNs = 3'600'000'000'000;

// A private copy of the fields that are looked at.
struct Record {
  uint32_t state, total, done, fetched, evictions, kernel;
  uint64_t id, start_ns, left_ns;
};
Record copy_of(const sluice_launch_record& r) {
  const auto u32 = [](const uint32_t& v) { return __atomic_load_n(&v, __ATOMIC_ACQUIRE); };
  const auto u64 = [](const uint64_t& v) { return __atomic_load_n(&v, __ATOMIC_RELAXED); };
  Record c{};
  c.state = u32(r.state);
  c.total = u32(r.tasks_total);
  c.done = std::min(u32(r.tasks_done), c.total);
  c.fetched = std::clamp(u32(r.tasks_fetched), c.done, c.total);
  c.evictions = u32(r.evictions);
  c.kernel = SLUICE_RECORD_KERNEL(u32(r.opaque));
  c.id = u64(r.launch_id);
  c.start_ns = u64(r.start_ns);
  c.left_ns = u64(r.left_ns);
  return c;
}

policy::LaunchShape shape_of(const Record& r) { return {.grid_blocks = r.total}; }

}  // namespace

void Progress::learn(uint32_t session, const sluice_report_area& report) {
  uint64_t& newest = learnt_[session];
  const uint64_t before = newest;
  for (const sluice_launch_record& record : report.records) {
    const Record r = copy_of(record);
    if (r.state != SLUICE_LAUNCH_DONE || r.id <= before) continue;
    newest = std::max(newest, r.id);
    // An evicted launch also waited.
    if (r.evictions != 0 || r.start_ns == 0 || r.left_ns <= r.start_ns ||
        r.left_ns - r.start_ns > kLongestNs || r.total == 0)
      continue;
    if (model_.size() >= kMaxKernelsLearnt && model_.samples(r.kernel) == 0) continue;
    model_.learn(r.kernel, shape_of(r), r.left_ns - r.start_ns);
  }
}

Result<void> Progress::restore(std::string_view text) {
  policy::DurationModel model;
  if (auto read = model.restore(text); !read) return read;
  if (model.size() > kMaxKernelsLearnt)
    return Error{EINVAL, "it has " + std::to_string(model.size()) + " kernels; at most " +
                             std::to_string(kMaxKernelsLearnt) + " are kept"};
  model_ = std::move(model);
  return {};
}

void Progress::add(const sluice_report_area& report, ProgressSums* sums) const {
  for (const sluice_launch_record& record : report.records) {
    const Record r = copy_of(record);
    const bool under_way = r.state == SLUICE_LAUNCH_READY || r.state == SLUICE_LAUNCH_TORUN ||
                           r.state == SLUICE_LAUNCH_RUNNING || r.state == SLUICE_LAUNCH_TOEVICT;
    if (!under_way || r.total == 0) continue;
    ++sums->launches;
    sums->tasks_total += r.total;
    sums->tasks_fetched += r.fetched;
    sums->tasks_done += r.done;
    if (const auto whole_ns = model_.predict(r.kernel, shape_of(r))) {
      ++sums->predicted;
      const double left = 1.0 - static_cast<double>(std::max(r.done, r.fetched)) / r.total;
      sums->remaining_ns +=
          static_cast<uint64_t>(static_cast<double>(std::min(*whole_ns, kLongestNs)) * left);
    }
  }
}

}  // namespace sluice::core
