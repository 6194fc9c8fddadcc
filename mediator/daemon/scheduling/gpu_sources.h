// SPDX-License-Identifier: Apache-2.0
// GpuSources: the GPU's own status registers and context-switch log, opened where they are, dropped
// when they are not what they were, opened again later; with a sentence for people about each. No
// timers, no decisions: Accounting (accounting.h) asks. sluiced's one thread.
//
// The software GPU: both are in its shared file, which every worker can write: it may be cut short,
// overwritten, replaced or full of noise at any time, and none of that does more than take the
// source away. NVIDIA's: the registers are BAR0, mapped from the PCI device's resource0 where the
// host allows it; the log is the driver's, and comes from the spawner (switch_log_feed.h). Where
// that can be had the registers are not read: it is exact, they are samples.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mediator/daemon/scheduling/switch_log_feed.h"
#include "mediator/gpu/register_reader.h"
#include "mediator/gpu/soft_gpu.h"

namespace sluice {

// What an operator may ask for ([accounting] in the configuration), and where to look.
struct AccountingSettings {
  bool registers = true, switch_log = true, words = true;
  bool faults = false;  // those that the software GPU has recorded, also without the others
  bool nvidia = false;
  std::string soft_gpu_file;                       // the software GPU's
  std::string registers_file;                      // NVIDIA: empty for the first GPU's resource0
  double cpu_budget = 0.02;                        // of a core, for polling in steady state
  std::shared_ptr<SwitchLogFeed> switch_log_feed;  // NVIDIA's log; null: it is not to be read
};

class GpuSources {
 public:
  enum class State : uint8_t { kOff, kWaiting, kInUse, kUnavailable };
  struct Source {
    State state = State::kOff;
    std::string why;  // for people; may be empty
  };

  explicit GpuSources(const AccountingSettings& settings);

  // Opens what is missing (at most once a second) and drops what has gone bad. True: something has
  // changed.
  bool check(uint64_t now_ns);

  const Source& registers_state() const { return registers_state_; }
  const Source& log_state() const { return log_state_; }
  bool has_registers() const { return registers_state_.state == State::kInUse; }
  bool has_log() const { return log_state_.state == State::kInUse; }
  bool is_mps() const { return soft_ && soft_->info().mode == SLUICE_SOFT_MPS; }
  // With has_registers().
  uint32_t status0() const { return registers_->status0(); }
  // Null: none. The software GPU's channels, for whose each one is.
  const gpu::SoftGpu* soft() const { return soft_.get(); }
  // For how long faults of a process have stopped the software GPU since then. Nothing: its file
  // is not to be believed, or is not there.
  std::optional<uint64_t> fault_stall_ns(uint32_t pid, uint64_t since_ns) const;

  // With has_log(). Appends what has come and can be: records from the future or far out of their
  // order are dropped and counted as lost. `lost`: some were. Returns up to when all records are
  // known (0: not).
  uint64_t read_log(uint64_t now_ns, std::vector<gpu::SoftGpu::SwitchRecord>& records, bool& lost);

 private:
  void open_soft(uint64_t now_ns);
  void open_nvidia();
  bool check_feed(uint64_t now_ns);
  uint64_t read_feed(uint64_t now_ns, std::vector<gpu::SoftGpu::SwitchRecord>& records, bool& lost);
  std::string nvidia_registers() const;
  void drop(const std::string& why, uint64_t now_ns);

  const AccountingSettings settings_;
  Source registers_state_, log_state_;
  std::unique_ptr<gpu::RegisterReader> registers_;
  std::unique_ptr<gpu::SoftGpu> soft_;
  std::unique_ptr<gpu::SwitchRingReader> ring_;  // NVIDIA's log
  uint64_t ring_number_ = 0;
  uint32_t records_read_ = 0;
  std::vector<gpu::SwitchEvent> events_;
  ino_t inode_ = 0;
  dev_t device_ = 0;
  uint64_t retry_ns_ = 0;
  std::unique_ptr<gpu::RegisterReader> early_;  // opened while sluiced was root
  uint64_t last_record_ns_ = 0;
  uint64_t noisy_since_ns_ = 0, noise_ = 0;  // impossible records in the second that began then
};

}  // namespace sluice
