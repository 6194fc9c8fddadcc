// SPDX-License-Identifier: Apache-2.0
// The configuration of sluiced: /etc/sluice/sluice.toml as values, checked. Read once at start,
// then never changed; the whole daemon shares it by const reference. Every key is described in the
// sample file (debian/sluice.toml), whose values are the defaults here; a test compares the two.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mediator/base/log.h"
#include "mediator/base/result.h"
#include "mediator/core/worker_protocol.h"
#include "policies/policy.h"

namespace sluice {

enum class DeviceKind { kAuto, kSoft, kNvidia };

// Green contexts take SMs in pairs, those that share a TPC (docs/decisions/0008-green-contexts.md).
inline constexpr uint32_t kSmUnit = 2;

// Whether each vGPU's contexts are apart, or side by side with others' (docs/concepts/modes.md).
enum class Mode : uint8_t { kStrict, kShared };

// Which kernels have clones that can be evicted, and when they are made.
enum class Clones : uint8_t { kEager, kLazy, kNone };

// One struct for each table of the file; Config is all of them.

// Before any table.
struct MainKeys {
  std::string runtime_dir = "/run/sluice";
  std::string state_dir;  // what is kept between runs; empty: nothing
  std::string worker = SLUICE_LIBEXECDIR "/sluice-worker";
  log::Level log_level = log::Level::kInfo;
  int nice = -10;
  bool real_time = true;
};

// [daemon] and [admin]: who sluiced becomes when it was started as root (identity.h), and its own
// socket.
struct DaemonKeys {
  std::string daemon_user;   // empty: kOwnUser, where the host has it
  std::string daemon_group;  // empty: the user's
  std::string admin_socket;  // empty: <runtime_dir>/admin.sock
  unsigned admin_mode = 0660;
};

// [device]: the GPU, its driver, and how kernels run on it.
struct DeviceKeys {
  DeviceKind device = DeviceKind::kAuto;
  std::string nvidia_library = "libcuda.so.1";
  uint32_t nvidia_sms = 0;  // for scheduler.spatial; 0: not known
  // The pipe folder of the MPS server that contexts which run side by side need.
  std::string mps_pipes = "/run/sluice-mps";
  // scheduler.spatial gives SMs so many at a time; 0: kSmUnit with green_contexts, else 1.
  uint32_t sm_unit = 0;
  std::string soft_library = SLUICE_LIBDIR "/libsluice-softcuda.so";
  std::string soft_file;  // empty: <runtime_dir>/softgpu, which is made anew at each start
  uint32_t soft_sms = 4;
  uint64_t soft_memory_bytes = 2ull << 30;
  uint32_t soft_threads = 0;                      // 0: the library's choice
  std::optional<worker_protocol::Signal> signal;  // unset: signal_for()
  uint32_t signal_chunk = 0;                      // FLEP's amortising factor; 0: adaptive
  uint32_t window_us = 32;                        // likewise
  uint32_t admission_us = 40;                     // see worker_protocol::Start
  std::optional<Clones> clones;                   // unset: clones_for()
  std::optional<uint64_t> context_memory_bytes;   // of each context; unset: context_bytes_for()
  // What a kernel's fault stops the GPU for where nothing measures it: an address that is not
  // mapped, and what else an SM reports.
  uint32_t fault_stall_ms = 150, exception_stall_ms = 78;
  // What the opening and the end of a context, and the load of a module, stop others for; 0: they
  // are not paced. Contexts, unset: context_stall_for().
  std::optional<uint32_t> context_stall_ms;
  uint32_t module_stall_ms = 0;
  std::string kernel_log = "/dev/kmsg";  // with faults of workers; empty: not read

  uint32_t context_stall_for(bool nvidia) const {
    return context_stall_ms.value_or(nvidia ? 10 : 0);
  }
};

// [workers] and [worker_environment]: the processes that serve programs.
struct WorkersKeys {
  std::string spawner = SLUICE_LIBEXECDIR "/sluice-spawner";
  std::string worker_uids = "2000000000-2000004095";
  bool require_walls = false;               // refuse to start where a wall is missing
  uint32_t spin_us = 3000;                  // see worker_protocol::Start; of a worker with a seat
  uint32_t spin_low_us = 20'000;            // ... for calls, where the vGPU is urgent
  std::optional<uint32_t> spin_processors;  // seats; unset: spin_processors_for()
  std::vector<std::string> worker_paths;    // more that workers may read
  // Of the machine code that NVIDIA's driver makes, kept in memory for the programs of one vGPU; 0:
  // none is; unset: code_cache_for().
  std::optional<uint64_t> code_cache_bytes;
  std::map<std::string, std::string> worker_environment;

  uint64_t code_cache_for(bool nvidia) const {
    return code_cache_bytes.value_or(nvidia ? 64ull << 20 : 0);
  }
  uint32_t spin_processors_for(uint32_t processors) const;
};

// [vgpu]: of vGPUs that do not say otherwise.
struct VgpuKeys {
  uint64_t region_bytes = 256ull << 20;
  uint64_t staging_bytes = 8ull << 20;
  uint64_t host_memory_bytes = 4ull << 30;
  uint32_t slots = 16;
  uint32_t weight = 100;
  policy::LatencyClass latency = policy::LatencyClass::kNormal;
  bool back_off = true;  // whose faults stopped the GPU for others waits (core/penalty.h)
  unsigned socket_mode = 0660;
  std::string socket_group;                // empty: the first of kQemuGroups that there is
  std::vector<std::string> socket_users;   // who may play a virtual machine; empty: libvirt's QEMU
  std::vector<std::string> socket_groups;  // empty: socket_group
  unsigned local_socket_mode = 0660;
};

// [scheduler]: who runs, for how long, and how the GPU changes hands.
struct SchedulerKeys {
  std::optional<Mode> mode;  // unset: as spatial and turns_by_priority want it, else strict
  std::string policy = "wfq";
  bool spatial = false;            // vGPUs side by side, each on some SMs
  bool turns_given = false;        // by the file
  bool turns_by_priority = false;  // contexts side by side, whose turn it is goes first
  // With that: kernels that are expected to take no longer run as they are.
  uint32_t turn_whole_us = 10'000;
  uint32_t turn_window_us = 250;  // longer ones run in windows of so long
  bool green_contexts = true;     // with spatial: by the hardware's own means where it has some
  // With spatial: how long a vGPU stands still when its SMs change, at least; 0: no time.
  uint32_t set_change_us = 250;
  // vGPUs by the GPU's own time slices, which the policy sets. Unset: sluiced chooses when it knows
  // the GPU (slices_for()).
  std::optional<bool> slices_wanted;
  bool slices = false;
  // The policies' own defaults, so that the simulator and sluiced go by the same.
  std::optional<uint32_t> quantum_min_us;  // unset: least_quantum_us()
  uint32_t quantum_max_us = policy::Config{}.max_quantum_ns / 1000;
  uint32_t latency_target_us = policy::Config{}.latency_target_ns / 1000;
  uint32_t short_gap_us = policy::Config{}.short_gap_ns / 1000;
  uint32_t handover_loss_percent =
      static_cast<uint32_t>(policy::Config{}.handover_loss * 100 + 0.5);
  uint32_t max_lead_turns = static_cast<uint32_t>(policy::Config{}.max_lead_turns);
  uint32_t chunk_target_us = 0;  // 0: chunk_target_for()
  std::string trace;             // file to record what the scheduler does; empty: none
  uint64_t trace_limit_bytes = 256ull << 20;

  uint32_t least_quantum_us() const;
  // Contexts of several vGPUs are on the GPU at one time.
  bool side_by_side() const { return spatial || turns_by_priority; }
  // "strict", "shared": of all vGPUs here.
  std::string mode_name() const { return side_by_side() ? "shared" : "strict"; }
};

// [accounting]: by what GPU time is measured; the clock is always a source.
struct AccountingKeys {
  bool by_registers = true, by_switch_log = true, by_words = true;
  uint32_t accounting_cpu_percent = 2;  // of a core
  std::string registers_file;           // NVIDIA: empty: the first GPU's
};

// [deadlines]: after how long sluiced acts on what has not happened.
struct DeadlinesKeys {
  uint32_t join_ms = 10000;  // a local program's first message
  // From its start to Ready; the first CUDA call may take seconds.
  uint32_t worker_start_ms = 60000;
  uint32_t session_end_ms = 5000;     // from End to the worker's exit; then SIGKILL
  uint32_t evict_warn_ms = 100;       // from an eviction to a line in the log, if it has not left
  uint32_t evict_end_least_ms = 100;  // ... of a vGPU that has harmed others lately
  // From an eviction to the end of sessions that have not left; unset: evict_end_for().
  std::optional<uint32_t> evict_end_ms;
  uint32_t evict_end_for(bool nvidia) const;
};

struct Config : MainKeys,
                DaemonKeys,
                DeviceKeys,
                WorkersKeys,
                VgpuKeys,
                SchedulerKeys,
                AccountingKeys,
                DeadlinesKeys {
  // For who started sluiced: nothing that keeps it from running.
  std::vector<std::string> remarks;

  // What holds for an NVIDIA GPU or the software GPU where the file leaves the choice to us.
  worker_protocol::Signal signal_for(bool nvidia) const;
  uint32_t chunk_target_for(bool nvidia) const;
  uint64_t context_bytes_for(bool nvidia) const;
  // A module's clones take several times as long as its originals, for NVIDIA's driver to assemble
  // and for the software GPU to decode; on NVIDIA's time slices nothing is evicted.
  Clones clones_for(bool nvidia) const {
    return clones.value_or(nvidia && slices ? Clones::kNone : Clones::kLazy);
  }

  // Whether slices are the choice where the file leaves it open: nothing else of it says how the
  // GPU changes hands. `measured`: what contexts use of them is known (the context-switch log).
  bool slices_for(bool nvidia, bool measured) const;
  std::string admin_socket_path() const;
  std::string soft_gpu_path() const;  // of the shared file
  std::string vgpu_dir() const { return runtime_dir + "/vgpu"; }
};

// `text` as TOML; `file` names it in errors ("FILE:LINE: ..."). Unknown tables and keys, wrong
// types and values out of range are errors; keys that are missing keep their defaults, and those of
// earlier releases that do nothing any more are remarks.
Result<Config> parse_config(std::string_view text, const std::string& file);
Result<Config> load_config(const std::string& path);

// What went wrong later with the value of a key: the key first, and then what to do about it.
Error of_key(const std::string& key, const Error& why, const std::string& remedy);

}  // namespace sluice
