// SPDX-License-Identifier: Apache-2.0
// RegisterReader: the engine status register of a GPU, from a file that looks like BAR0: the PCI
// resource0 of a real one (where the host allows mapping it), or the software GPU's shared file.
// What accounting::RegisterSource samples.
//
// Owned by sluiced (and tests); one thread. Reads only; never interprets what it reads. The
// graphics runlist is found in the device table, as abi/registers.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mediator/base/process/bus_guard.h"
#include "mediator/base/result.h"

namespace sluice::gpu {

class RegisterReader {
 public:
  // Errors: no such file, mapping refused (EPERM: the kernel keeps BAR0 to itself), no graphics
  // engine in its device table.
  static Result<std::unique_ptr<RegisterReader>> open(const std::string& path);
  ~RegisterReader();
  RegisterReader(const RegisterReader&) = delete;
  RegisterReader& operator=(const RegisterReader&) = delete;

  // ENGINE_STATUS0 of the graphics engine, now.
  uint32_t status0() const { return read(status0_at_); }
  uint32_t runlist_base() const { return runlist_base_; }
  // The file has been cut short under the mapping: zeros are read where it ended.
  bool lost() const { return guard_.lost(); }

 private:
  RegisterReader() = default;
  uint32_t read(size_t at) const;

  const std::byte* mapping_ = nullptr;
  size_t bytes_ = 0;
  BusGuard guard_;
  uint32_t runlist_base_ = 0;
  size_t status0_at_ = 0;
};

}  // namespace sluice::gpu
