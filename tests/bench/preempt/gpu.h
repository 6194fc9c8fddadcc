// SPDX-License-Identifier: Apache-2.0
// What the preemption benchmark needs of a GPU: modules with their rewritten clones, launches of
// both forms, the four eviction signals, and memory.
//
// One thread. Works on NVIDIA's driver and on the software GPU, loaded by name. Any failing call
// ends the program with a message: a benchmark has nobody to recover for. Uses the worker's own
// launch arithmetic (mediator/worker/launch/plan/geometry.h) and choice of forms
// (register_clamp.h), so that what is measured is what runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "abi/preempt.h"
#include "kernels/passes/rewrite.h"
#include "kernels/suite/catalog/catalog.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/plan/geometry.h"
#include "mediator/worker/launch/plan/register_clamp.h"
#include "tests/support/device_images.h"

namespace sluice::bench {

[[noreturn]] void die(const std::string& message);
void check(CUresult result, const char* what);
#define CU(call) ::sluice::bench::check((call), #call)
std::uint64_t now_ns();  // CLOCK_MONOTONIC

// How the evict word reaches the blocks.
enum class Signal {
  kProxy,  // host memory, polled by block 0, which copies it to device memory (EffiSha)
  kWrite,  // a stream write to device memory from a stream of high priority
  kCopy,   // a copy to device memory from a stream of high priority (FRS)
  kHost,   // host memory, read by every block (FLEP)
};
inline constexpr const char* kSignalNames[] = {"proxy", "stream-write", "copy", "host"};

struct Kernel {
  CUfunction original = nullptr, clone = nullptr, clamped = nullptr, one_task = nullptr,
             one_task_clamped = nullptr, window = nullptr;
  passes::KernelReport report;
  int registers = 0, clone_registers = 0, clamped_registers = 0, one_task_registers = 0;
};

struct Module {
  CUmodule cu = nullptr;
  std::map<std::string, Kernel, std::less<>> kernels;
};

class Gpu {
 public:
  explicit Gpu(const std::string& library);
  Module load(const std::string& ptx);
  int resident(CUfunction f, const suite::Launch& l, std::uint32_t shared) const;

  // The evict word; generations are this object's, one for each physical launch.
  std::uint32_t next_generation() { return ++generation_; }
  std::uint32_t generation() const { return generation_; }
  void evict(Signal signal, std::uint32_t generation, std::uint32_t lo = 0,
             std::uint32_t hi = 0xffff);
  CUdeviceptr signal_address(Signal signal) const;

  volatile sluice_launch_record* record(int i) { return records_ + i; }
  CUdeviceptr record_address(int i) const {
    return records_device_ + i * sizeof(sluice_launch_record);
  }
  CUdeviceptr control_address(int i) const { return controls_ + i * sizeof(sluice_launch_control); }
  sluice_launch_control read_control(int i);
  void zero_control(int i, int count = 1);

  gpu::DriverApi api;
  std::string name;
  int sms = 0, clock_khz = 0;
  CUstream stream = nullptr, second = nullptr, urgent = nullptr;
  CUevent fork = nullptr, join = nullptr, ended[2] = {};
  CUdeviceptr left = 0;
  static constexpr int kControls = 64;

 private:
  std::uint32_t generation_ = 0;
  volatile sluice_evict_word* host_word_ = nullptr;
  std::uint64_t* staging_ = nullptr;
  CUdeviceptr host_word_device_ = 0, device_word_ = 0, records_device_ = 0, controls_ = 0;
  volatile sluice_launch_record* records_ = nullptr;
};

// One logical launch of a clone, in as many physical ones as it takes.
class CloneLaunch {
 public:
  struct Settings {
    Signal signal = Signal::kProxy;
    worker::LoopSettings loop;
    std::uint32_t first_chunk = 1;
    std::uint16_t sm_lo = 0, sm_hi = 0xffff, sm_quota = 0;
    bool spatial = false;   // counts workers for each SM
    bool one_task = false;  // where there are two clones
    // Of a window; 0: no windows.
    WindowPlan windows;
    bool clamp = true;   // the third form (register_clamp.h) where there is one
    bool record = true;  // what the kernel reports to the host
  };
  // `control`: index of a zeroed control block and record.
  CloneLaunch(Gpu& gpu, const Kernel& kernel, const suite::Launch& launch,
              std::vector<std::byte> params, int control, const Settings& settings);
  bool evictable() const { return geometry_.evictable; }
  // A physical launch under a new generation. `second`: on the second stream, as a second grid.
  void queue(int pred_control = -1, bool second = false);
  std::uint32_t generation() const { return generation_; }
  std::uint32_t workers() const { return geometry_.blocks - (proxy() ? 1 : 0); }
  std::uint32_t tasks() const { return tasks_; }
  bool done();  // from the control block, the stream having ended; once for each physical launch
  bool one_task() const { return one_task_; }
  bool windows() const { return function_ != nullptr && function_ == kernel_.window; }
  bool clamped() const { return function_ != nullptr && function_ == kernel_.clamped; }
  // In windows: queue() begins none after this time (now_ns()); 0: all. Then the eviction.
  void stop_at(std::uint64_t ns) { stop_at_ns_ = ns; }
  worker::Geometry& geometry() { return geometry_; }
  Settings& settings() { return settings_; }

 private:
  bool proxy() const { return settings_.signal == Signal::kProxy; }
  void queue_windows(const sluice_preempt_params& launch);
  Gpu& gpu_;
  const Kernel& kernel_;
  const suite::Launch& launch_;
  std::vector<std::byte> params_;
  int control_;
  Settings settings_;
  worker::Geometry geometry_;
  CUfunction function_ = nullptr;
  bool one_task_ = false;
  std::uint32_t admitted_ = 0;  // one task a block, windows: before the newest physical launch
  std::uint32_t windows_end_ = 0;
  std::uint64_t stop_at_ns_ = 0;
  std::uint32_t tasks_, shared_;
  std::uint32_t generation_ = 0;
  int physical_ = 0;
};

void launch_original(Gpu& gpu, CUfunction f, const suite::Launch& l, std::vector<std::byte>& params,
                     CUstream stream);

// A case's buffers on the GPU.
class Memory {
 public:
  Memory(Gpu& gpu, const suite::Case& work);
  ~Memory();
  void reset();    // initial contents
  void save();     // a copy of everything, on the device
  void restore();  // back, queued in the stream
  suite::Contents read();
  std::vector<testing::DevicePiece> pieces() const;
  std::vector<std::byte> params(const suite::Launch& l) const;
  // Any step but a launch.
  void step(const Module& module, const suite::Step& step);

 private:
  Gpu& gpu_;
  const suite::Case& work_;
  std::vector<CUdeviceptr> at_, saved_;
  std::vector<std::uint64_t> addresses_;
};

}  // namespace sluice::bench
