// SPDX-License-Identifier: Apache-2.0
// BlockRecord: where the blocks of a kernel ran. The kernel writes down the SM of each of its
// blocks in pinned memory, which the host reads when it has ended. Each launch writes in a place of
// its own; there is a fixed number of them.
//
// load(), launch() and release() are of one thread, with the context current. The rest is not
// locked; memory that load() makes is fixed before the first keeps_to().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mediator/gpu/driver_api.h"

namespace sluice::worker {

class BlockRecord {
 public:
  // `sms`: of the GPU.
  BlockRecord(uint32_t sms, size_t places);

  // A free place, of which there must be one.
  size_t take();
  void give_back(size_t place);

  // The kernel and the memory; once they are there it does nothing.
  CUresult load(const gpu::DriverApi& api);
  // The kernel in `stream`, with kBlocks blocks for each of `sms` SMs.
  CUresult launch(const gpu::DriverApi& api, size_t place, uint32_t sms, CUstream stream) const;
  void release(const gpu::DriverApi& api);

  // The launch has ended: whether all its blocks have run, on no more than `sms` SMs. Which SMs
  // they were stays unknown: an MPS client's are numbered from 0 in each green context.
  bool keeps_to(size_t place, uint32_t sms) const;

  static constexpr uint32_t kBlocks = 2;  // for each SM

 private:
  uint32_t* words(size_t place) const { return seen_ + place * kBlocks * sms_; }

  const uint32_t sms_;
  const size_t places_;
  std::vector<size_t> free_;
  CUmodule module_ = nullptr;
  CUfunction where_ = nullptr;
  uint32_t* seen_ = nullptr;  // pinned; %smid + 1 of each block, kBlocks * sms_ of each place
};

}  // namespace sluice::worker
