// SPDX-License-Identifier: Apache-2.0
// Fat binaries: the containers in which nvcc puts code for several GPUs. Finds the PTX that a GPU's
// driver would compile out of one, and the machine code that it would run. Users: the software GPU,
// the guest's libcuda.so.1.
//
// Pure; any thread. The image is the caller's own memory, but what it says is bounded before use.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "mediator/base/result.h"

namespace sluice::ptx {

// Whether the four bytes begin a fat binary, or the wrapper that programs register.
bool is_fat_binary(uint32_t magic);

// How far an image reaches where the program that gave it did not say: as far as its header says.
constexpr uint64_t kUnknownBytes = UINT64_MAX;

// The PTX for the newest GPU not beyond compute capability `newest` (90: 9.0). `bytes`: of the
// image, for example of a file, which may have been cut off, and in which a wrapper's pointer would
// mean nothing. Errors have a CUresult as code: nothing but machine code in it (by which GPUs), or
// a compression that this build cannot undo.
Result<std::string> ptx_of_fat_binary(const void* image, uint32_t newest,
                                      uint64_t bytes = kUnknownBytes);

// The same PTX, copied out of the fat binary but still packed: its user may never need the text.
class PackedPtx {
 public:
  PackedPtx() = default;
  explicit PackedPtx(std::string entry) : entry_(std::move(entry)) {}
  bool empty() const { return entry_.empty(); }
  Result<std::string> unpack() const;

 private:
  std::string entry_;  // with its header; empty: there is none
};
PackedPtx packed_ptx_of_fat_binary(const void* image, uint32_t newest,
                                   uint64_t bytes = kUnknownBytes);

// The machine code for the newest GPU of `newest`'s generation not beyond it: what runs there as it
// is. The same errors.
Result<std::string> cubin_of_fat_binary(const void* image, uint32_t newest,
                                        uint64_t bytes = kUnknownBytes);

}  // namespace sluice::ptx
