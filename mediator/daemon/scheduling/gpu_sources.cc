// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/gpu_sources.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "mediator/base/clock.h"

namespace sluice {
namespace {

constexpr uint64_t kRetryNs = 1'000'000'000;
// A file that went bad gets more time: whoever did it may do it again.
constexpr uint64_t kDistrustNs = 10'000'000'000;
// Stamps of two processes that were interrupted between stamp and store may be out of order by
// this much.
constexpr uint64_t kDisorderNs = 5'000'000;
constexpr uint64_t kFutureNs = 1'000'000;
// More impossible records than this in a second, and somebody writes noise.
constexpr uint64_t kMostNoise = 100;
// The log's stamps have steps of 32 ns.
constexpr uint64_t kStampNs = 64;

// The BAR0 of the GPU that NVIDIA's driver serves first, in its own order.
std::string first_nvidia_registers() {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/driver/nvidia/gpus"), &::closedir);
  std::string first;
  if (!folder) return first;
  while (const dirent* e = ::readdir(folder.get())) {
    const std::string name = e->d_name;
    if (name.find(':') != std::string::npos && (first.empty() || name < first)) first = name;
  }
  return first.empty() ? first : "/sys/bus/pci/devices/" + first + "/resource0";
}

}  // namespace

GpuSources::GpuSources(const AccountingSettings& settings) : settings_(settings) {
  using enum State;
  registers_state_ = settings.registers ? Source{kWaiting, ""}
                                        : Source{kOff, "not asked for in the configuration"};
  log_state_ = settings.switch_log ? Source{kWaiting, ""}
                                   : Source{kOff, "not asked for in the configuration"};
  // Now: sluiced may not stay root (identity.h). What is mapped stays so.
  const std::string path = settings.nvidia && settings.registers ? nvidia_registers() : "";
  if (path.empty()) return;
  if (auto reader = gpu::RegisterReader::open(path); reader) early_ = std::move(*reader);
}

void GpuSources::drop(const std::string& why, uint64_t now_ns) {
  registers_.reset();
  soft_.reset();
  if (settings_.registers) registers_state_ = {State::kUnavailable, why};
  if (settings_.switch_log) log_state_ = {State::kUnavailable, why};
  retry_ns_ = now_ns + kDistrustNs;
}

bool GpuSources::check(uint64_t now_ns) {
  if (!settings_.registers && !settings_.switch_log) return false;
  const bool fed = settings_.nvidia && settings_.switch_log && check_feed(now_ns);
  if (fed || (settings_.nvidia && has_log())) return fed;
  if (soft_ || registers_) {
    if (settings_.nvidia) return false;
    struct stat status {};
    if (!soft_->intact() || (registers_ && registers_->lost())) {
      drop(settings_.soft_gpu_file + " was cut short or overwritten", now_ns);
      return true;
    }
    // Gone is not bad: those who have it mapped go on, and who comes next makes it anew.
    if (::stat(settings_.soft_gpu_file.c_str(), &status) != 0 ||
        (status.st_ino == inode_ && status.st_dev == device_))
      return false;
    drop(settings_.soft_gpu_file + " is another file now", now_ns);
    retry_ns_ = now_ns;
    return true;
  }
  if (now_ns < retry_ns_) return false;
  retry_ns_ = now_ns + kRetryNs;
  const State before = registers_state_.state, log_before = log_state_.state;
  const std::string why = registers_state_.why + log_state_.why;
  if (settings_.nvidia)
    open_nvidia();
  else
    open_soft(now_ns);
  return before != registers_state_.state || log_before != log_state_.state ||
         why != registers_state_.why + log_state_.why;
}

std::string GpuSources::nvidia_registers() const {
  return settings_.registers_file.empty() ? first_nvidia_registers() : settings_.registers_file;
}

// NVIDIA's log has come or gone. With it the registers go, and they come back after it.
bool GpuSources::check_feed(uint64_t now_ns) {
  const SwitchLogFeed* feed = settings_.switch_log_feed.get();
  const bool usable = feed != nullptr && feed->usable(now_ns);
  if (usable && has_log() && ring_number_ == feed->number()) return false;
  if (usable) {
    ring_ = feed->reader();
    ring_number_ = feed->number();
  }
  if (usable && ring_) {
    log_state_ = {State::kInUse, "the driver's own, read by the spawner"};
    registers_.reset();
    if (settings_.registers) registers_state_ = {State::kOff, "the switch log is exact"};
    return true;
  }
  const bool had = has_log();
  std::string why = feed == nullptr ? "not asked for" : feed->why(now_ns);
  const bool changed = had || log_state_.why != why;
  ring_.reset();
  log_state_ = {State::kUnavailable, std::move(why)};
  if (had && settings_.registers) registers_state_ = {State::kWaiting, ""}, retry_ns_ = 0;
  return changed && had;
}

// Whose each one is the caller finds by its process.
uint64_t GpuSources::read_feed(uint64_t now_ns, std::vector<gpu::SoftGpu::SwitchRecord>& records,
                               bool& lost) {
  events_.clear();
  const auto news = ring_->read(events_);
  lost = news.lost;
  for (const gpu::SwitchEvent& e : events_)
    records.push_back({e.time_ns, ++records_read_, 0, e.pid, e.start != 0});
  return std::min(news.known_ns, now_ns);
}

void GpuSources::open_nvidia() {
  if (!settings_.registers) return;
  const std::string path = nvidia_registers();
  if (path.empty()) {
    registers_state_ = {
        State::kUnavailable,
        "no GPU in /proc/driver/nvidia/gpus; name its resource0 in accounting.registers_file"};
    return;
  }
  auto reader = early_ ? Result<std::unique_ptr<gpu::RegisterReader>>(std::move(early_))
                       : gpu::RegisterReader::open(path);
  if (!reader) {
    // Does not change while the host runs, as a rule: once a minute is enough.
    retry_ns_ += 59 * kRetryNs;
    registers_state_ = {
        State::kUnavailable,
        "the GPU's registers cannot be read (" + reader.error().message +
            "): sluiced has to be started as root, on a kernel that is not locked down"};
    return;
  }
  registers_ = std::move(*reader);
  registers_state_ = {State::kInUse, path + ", channel groups learnt by turns"};
}

void GpuSources::open_soft(uint64_t now_ns) {
  struct stat status {};
  if (::stat(settings_.soft_gpu_file.c_str(), &status) != 0 && errno == ENOENT) {
    const Source waiting{State::kWaiting, "no program has used the software GPU yet"};
    if (settings_.registers) registers_state_ = waiting;
    if (settings_.switch_log) log_state_ = waiting;
    return;
  }
  auto soft = gpu::SoftGpu::open(settings_.soft_gpu_file, false);
  if (!soft) return drop(soft.error().message, now_ns);
  inode_ = status.st_ino;
  device_ = status.st_dev;
  if (settings_.registers) {
    auto reader = gpu::RegisterReader::open(settings_.soft_gpu_file);
    if (!reader) return drop(reader.error().message, now_ns);
    registers_ = std::move(*reader);
    registers_state_ = {State::kInUse, ""};
  }
  soft_ = std::move(*soft);
  last_record_ns_ = 0;
  if (!settings_.switch_log) return;
  log_state_ = is_mps() ? Source{State::kUnavailable,
                                 "contexts that run side by side (mps) are one context to it"}
                        : Source{State::kInUse, ""};
}

// Opened for this where nothing else is read from it, or not yet: that a program is killed with
// work on the GPU would be taken for a fault that nobody has seen.
std::optional<uint64_t> GpuSources::fault_stall_ns(uint32_t pid, uint64_t since_ns) const {
  if (soft_)
    return soft_->intact() ? std::optional(soft_->fault_stall_ns(pid, since_ns)) : std::nullopt;
  const bool was_bad =
      registers_state_.state == State::kUnavailable || log_state_.state == State::kUnavailable;
  if (!settings_.faults || was_bad) return std::nullopt;
  const auto soft = gpu::SoftGpu::open(settings_.soft_gpu_file, false);
  if (!soft) return std::nullopt;
  return (*soft)->fault_stall_ns(pid, since_ns);
}

uint64_t GpuSources::read_log(uint64_t now_ns, std::vector<gpu::SoftGpu::SwitchRecord>& records,
                              bool& lost) {
  if (ring_) return read_feed(now_ns, records, lost);
  const size_t before = records.size();
  lost = soft_->read_log(records) > 0;
  size_t kept = before;
  for (size_t i = before; i < records.size(); ++i) {
    const auto& r = records[i];
    if (r.time_ns > monotonic_ns() + kFutureNs || r.time_ns + kDisorderNs < last_record_ns_) {
      lost = true;
      ++noise_;
      continue;
    }
    last_record_ns_ = std::max(last_record_ns_, r.time_ns);
    records[kept] = r;
    records[kept++].time_ns = last_record_ns_;
  }
  records.resize(kept);
  if (now_ns - noisy_since_ns_ > kRetryNs) noisy_since_ns_ = now_ns, noise_ = 0;
  if (noise_ > kMostNoise) {
    drop(settings_.soft_gpu_file + " holds records that cannot be", now_ns);
    records.resize(before);
    return 0;
  }
  return soft_->records_pending() ? last_record_ns_ : now_ns - kStampNs;
}

}  // namespace sluice
