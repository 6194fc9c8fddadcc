// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace sluice::io {

Mapping::~Mapping() {
  if (data_) ::munmap(data_, bytes_);
}

Result<Mapping> Mapping::map(int fd, size_t bytes, bool writable) {
  void* p =
      ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return Error::from_errno("mmap of " + std::to_string(bytes) + " bytes");
  Mapping m;
  m.data_ = p;
  m.bytes_ = bytes;
  return m;
}

Result<void> punch_out(int fd, size_t offset, size_t bytes) {
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes)) != 0)
    return Error::from_errno("fallocate(PUNCH_HOLE)");
  return {};
}

Result<void> seal(int fd, int seals) {
  if (::fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) return Error::from_errno("F_ADD_SEALS");
  return {};
}

}  // namespace sluice::io
