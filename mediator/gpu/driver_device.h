// SPDX-License-Identifier: Apache-2.0
// DriverDevice: the device files of NVIDIA's kernel driver, as far as the context-switch log needs
// them (driver_switch_log.h). Four system calls behind an interface, so that a test can answer in
// the driver's place. Owned by the owner of the log; one thread. It passes requests on unread.
#pragma once

#include <cstddef>

namespace sluice::gpu {

class DriverDevice {
 public:
  virtual ~DriverDevice() = default;
  // Each as the system call: -1 (null for a mapping) with errno set.
  virtual int open(const char* path) = 0;
  virtual int ioctl(int fd, unsigned long request, void* argument) = 0;
  virtual const void* map(int fd, size_t bytes) = 0;  // to be read only, shared
  virtual void unmap(const void* mapping, size_t bytes) = 0;
  virtual void close(int fd) = 0;
};

// The system's. Lives as long as the program.
DriverDevice& system_driver_device();

}  // namespace sluice::gpu
