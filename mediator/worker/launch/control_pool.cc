// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/control_pool.h"

#include <algorithm>
#include <bit>

#include "mediator/base/check.h"

namespace sluice::worker {

CUresult ControlPool::zero(Page& page) {
  page.next = 0;
  page.zeroing = true;
  CUresult r = api_.cuMemcpyHtoDAsync(page.base, zeros_, kPageBytes, transfers_);
  return r == CUDA_SUCCESS ? api_.cuEventRecord(page.zeroed, transfers_) : r;
}

CUresult ControlPool::add_page() {
  Page page;
  CUresult r = api_.cuMemAlloc(&page.base, kPageBytes);
  if (r != CUDA_SUCCESS) return r;
  r = api_.cuEventCreate(&page.zeroed, CU_EVENT_DISABLE_TIMING);
  if (r != CUDA_SUCCESS) {
    api_.cuMemFree(page.base);
    return r;
  }
  r = zero(page);
  pages_.push_back(page);
  return r;
}

CUresult ControlPool::prepare(uint32_t pages) {
  while (pages_.size() < pages) {
    if (CUresult r = add_page(); r != CUDA_SUCCESS) return r;
  }
  return api_.cuStreamSynchronize(transfers_);
}

bool ControlPool::usable(Page& page, bool wait, CUresult* error) {
  if (page.next == kBlocksPerPage) return false;
  if (page.zeroing) {
    CUresult r = wait ? api_.cuStreamSynchronize(transfers_) : api_.cuEventQuery(page.zeroed);
    if (r == CUDA_ERROR_NOT_READY) return false;
    if (r != CUDA_SUCCESS) {
      *error = r;
      return false;
    }
    page.zeroing = false;
  }
  return true;
}

CUresult ControlPool::take(Block* block) {
  CUresult error = CUDA_SUCCESS;
  for (bool wait : {false, true}) {
    for (uint32_t i = 0; i < pages_.size(); ++i) {
      const uint32_t index = (current_ + i) % static_cast<uint32_t>(pages_.size());
      Page& page = pages_[index];
      if (usable(page, wait, &error)) {
        current_ = index;
        *block = {page.base + page.next * sizeof(sluice_launch_control), index, this};
        ++page.next;
        ++page.live;
        return CUDA_SUCCESS;
      }
      if (error != CUDA_SUCCESS) return error;
    }
    if (!wait && pages_.size() < kMaxPages) {
      if (CUresult r = add_page(); r != CUDA_SUCCESS) return r;
    }
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void ControlPool::give_back(const Block& block) {
  if (abandoned_) return;
  SLUICE_CHECK(block.page < pages_.size());
  Page& page = pages_[block.page];
  SLUICE_CHECK(page.live > 0);
  // An error here comes up again at the next call.
  if (--page.live == 0 && page.next == kBlocksPerPage) (void)zero(page);
}

CUresult LeftPool::take(CUdeviceptr* list, SmSet* barred) {
  if (free_.empty()) {
    if (made_ >= kMaxLists) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t bytes = list_bytes();
    CUdeviceptr slab = 0;
    CUresult r = api_.cuMemAlloc(&slab, bytes * kSlabLists);
    if (r != CUDA_SUCCESS) return r;
    // Copies, not a fill: a fill is a kernel and would wait behind the launches that fill the GPU.
    for (uint64_t at = 0; at < bytes * kSlabLists && r == CUDA_SUCCESS; at += zero_bytes_) {
      r = api_.cuMemcpyHtoDAsync(
          slab + at, zeros_, std::min<uint64_t>(zero_bytes_, bytes * kSlabLists - at), transfers_);
    }
    if (r == CUDA_SUCCESS) r = api_.cuStreamSynchronize(transfers_);
    if (r != CUDA_SUCCESS) {
      (void)api_.cuMemFree(slab);
      return r;
    }
    for (uint32_t i = 0; i < kSlabLists; ++i) free_.push_back({slab + i * bytes, {}});
    made_ += kSlabLists;
  }
  *list = free_.back().list;
  *barred = free_.back().barred;
  free_.pop_back();
  return CUDA_SUCCESS;
}

StatePool::Piece StatePool::take(uint64_t bytes) {
  // Powers of two, so that pieces fit other launches.
  constexpr uint64_t kLeast = 64 << 10;
  if (bytes > kMaxBytes) return {};
  const uint64_t want = std::bit_ceil(std::max(bytes, kLeast));
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->bytes >= want && (best == free_.end() || it->bytes < best->bytes)) best = it;
  if (best != free_.end()) {
    const Piece piece = *best;
    *best = free_.back();
    free_.pop_back();
    return piece;
  }
  if (made_ + want > kMaxBytes || !pay_(want)) return {};
  Piece piece{0, want, this};
  made_ += want;
  if (api_.cuMemAlloc(&piece.address, want) != CUDA_SUCCESS) return {};
  return piece;
}

}  // namespace sluice::worker
