// SPDX-License-Identifier: Apache-2.0
// DriverSwitchLog: the context-switch log of an NVIDIA GPU, as its kernel driver records it: one
// record when a context starts on the compute engine and one when it ends there, with the time, the
// host's number of its process, and a channel of it.
//
//   the GPU's microcode ──▶ kernel driver ──▶ ring of records ──▶ read(), read only
//                              ▲ flush()
//
// The driver keeps what the GPU has written to itself for some 20 ms, unless it has to flush.
// The ring keeps the oldest records: what finds no room is dropped and counted.
//
// To open it takes root (CAP_SYS_ADMIN); another user would see records of its own processes only,
// so that is refused here. Nothing is asked of CUDA. The process has no context of its own. When it
// ends, in whatever way, the kernel driver takes the log away.
//
// Owned by the spawner's recorder (spawner/switch_recorder.h) and by tests; one thread. Calls of
// the driver are expected to return at once, but nothing here bounds them. Layouts are those of
// NVIDIA's open kernel modules, declared anew in the .cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/gpu/driver_device.h"

namespace sluice::gpu {

class DriverSwitchLog {
 public:
  struct Record {
    uint64_t time_ns = 0;  // the GPU's clock (%globaltimer), steps of 32
    uint32_t pid = 0;      // 0, 0xffffffff: not known
    uint32_t channel = 0;  // several of a context have it in turn
    uint16_t seq = 0;
    bool start = false;  // false: it ends
  };
  // What was asked of the driver, in order, and how that went: for people.
  struct Step {
    std::string what;
    int error = 0;        // errno; 0: the call returned
    uint32_t status = 0;  // the driver's own; 0: done
  };

  // `records`: how many the ring holds. An error names the step that failed. `steps` may be null.
  static Result<std::unique_ptr<DriverSwitchLog>> open(DriverDevice& device, uint32_t records,
                                                       std::vector<Step>* steps = nullptr);
  ~DriverSwitchLog();
  DriverSwitchLog(const DriverSwitchLog&) = delete;
  DriverSwitchLog& operator=(const DriverSwitchLog&) = delete;

  // All that the GPU has written until now is in the ring afterwards.
  Result<void> flush();
  // Appends what is in the ring and makes room there. Returns how many were dropped since the last
  // call.
  Result<uint64_t> read(std::vector<Record>& records);
  // The GPU's clock, now.
  Result<uint64_t> time_ns();

 private:
  struct Mapped {
    int fd = -1;
    const void* at = nullptr;
    size_t bytes = 0;
  };
  explicit DriverSwitchLog(DriverDevice& device, std::vector<Step>* steps)
      : device_(device), steps_(steps) {}
  Result<void> set_up(uint32_t records);
  Result<int> open_file(const char* path);
  Result<uint32_t> device_instance();
  Result<void> make(const char* what, uint32_t parent, uint32_t handle, uint32_t object_class,
                    void* parameters, uint32_t bytes);
  Result<void> make_memory(const char* what, uint32_t handle, uint64_t bytes);
  Result<void> map_memory(const char* what, uint32_t handle, size_t bytes, Mapped& to);
  Result<void> bind(uint32_t records);
  Result<void> control(const char* what, uint32_t object, uint32_t command, void* parameters,
                       uint32_t bytes);
  // One call; `status` points into `argument`.
  Result<void> call(const char* what, int fd, unsigned long request, void* argument,
                    const uint32_t* status);

  DriverDevice& device_;
  std::vector<Step>* steps_;  // while it is being opened
  int control_fd_ = -1, gpu_fd_ = -1;
  uint32_t client_ = 0;
  uint32_t records_ = 0;
  Mapped header_, ring_;
  uint32_t get_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace sluice::gpu
