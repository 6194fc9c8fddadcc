// SPDX-License-Identifier: Apache-2.0
// Mapping: one mmap, unmapped at the end. Move only; any thread. Who may write the memory behind it
// is the owner's business: it may be shared with a hostile peer.
#pragma once

#include <cstddef>

#include "mediator/base/result.h"

namespace sluice::io {

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  // Shared mapping of the first `bytes` of `fd`.
  static Result<Mapping> map(int fd, size_t bytes, bool writable);

  void* data() const { return data_; }
  template <class T>
  T* as(size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Frees the memory behind [offset, offset + bytes) of a memfd; it reads as zeros afterwards.
Result<void> punch_out(int fd, size_t offset, size_t bytes);

// Stops others from adding seals to `fd` (a memfd of ours that peers get); adds `seals` first.
Result<void> seal(int fd, int seals);

}  // namespace sluice::io
