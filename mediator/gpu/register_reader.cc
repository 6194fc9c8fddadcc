// SPDX-License-Identifier: Apache-2.0
#include "mediator/gpu/register_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>

#include "abi/registers.h"
#include "mediator/base/fd.h"

namespace sluice::gpu {
namespace {

// BAR0 of today's GPUs; nothing that is read here lies beyond.
constexpr size_t kMostBytes = 16u << 20;
// Rows of the device table that are read: GPUs have some 30, of 3 words each.
constexpr unsigned kTableWords = 256;

}  // namespace

Result<std::unique_ptr<RegisterReader>> RegisterReader::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Error::from_errno(path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return Error::from_errno(path);
  std::unique_ptr<RegisterReader> reader(new RegisterReader);
  reader->bytes_ = std::min(static_cast<size_t>(std::max<off_t>(status.st_size, 0)), kMostBytes);
  if (reader->bytes_ < SLUICE_REG_PTOP_DEVICE_INFO2 + 4 * kTableWords)
    return Error{0, path + ": too small to be a GPU's registers"};
  void* p = ::mmap(nullptr, reader->bytes_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return Error::from_errno("mapping " + path);
  reader->mapping_ = static_cast<const std::byte*>(p);
  reader->guard_ = BusGuard(p, reader->bytes_);
  // Rows of one to three words, chained by bit 31. A row's type is in word 0, bits 30:24 (graphics:
  // 0); its runlist's base is in word 2, bits 25:10, in KiB.
  uint32_t row[3] = {};
  unsigned length = 0;
  for (unsigned i = 0; i < kTableWords; ++i) {
    const uint32_t value = reader->read(SLUICE_REG_PTOP_DEVICE_INFO2 + 4 * i);
    if (length < 3) row[length] = value;
    ++length;
    if ((value & 0x8000'0000u) != 0) continue;
    if (length == 3 && (row[0] >> 24 & 0x7f) == 0) {
      reader->runlist_base_ = (row[2] >> 10 & 0xffff) << 10;
      reader->status0_at_ = SLUICE_REG_ENGINE_STATUS0(reader->runlist_base_, 0);
      if (reader->runlist_base_ == 0 || reader->status0_at_ + 4 > reader->bytes_) break;
      return reader;
    }
    length = 0;
  }
  return Error{0, path + ": no graphics engine in the device table"};
}

RegisterReader::~RegisterReader() {
  guard_ = BusGuard();
  if (mapping_ != nullptr) ::munmap(const_cast<std::byte*>(mapping_), bytes_);
}

uint32_t RegisterReader::read(size_t at) const {
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(mapping_ + at), __ATOMIC_ACQUIRE);
}

}  // namespace sluice::gpu
