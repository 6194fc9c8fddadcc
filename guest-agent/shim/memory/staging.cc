// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/memory/staging.h"

#include <algorithm>

#include "abi/end_word.h"
#include "guest-agent/shim/session/log.h"

namespace sluice::guest {
namespace {

// A piece large enough that its call costs little, small enough that several are under way.
constexpr size_t kMostPieceBytes = 1 << 20, kLeastPieceBytes = 128 << 10;
constexpr size_t kPiecesAtLeast = 4;
// Of one copy, as far as the least size allows.
constexpr size_t kPiecesOfACopy = 8;

}  // namespace

Staging::Staging(WorkerLink& link) : link_(link) {
  const sluice_slot_header& header = link.channel().header();
  const uint64_t offset = header.staging_offset, bytes = header.staging_bytes;
  if (offset > link.channel().region_bytes() || bytes > link.channel().region_bytes() - offset) {
    complain_once("the slot's staging memory is out of range");
    return;
  }
  base_ = link.channel().region() + offset;
  blocks_.resize((bytes - std::min<uint64_t>(bytes, SLUICE_END_WORD_BYTES)) / kBlockBytes);
  piece_bytes_ = std::min(kMostPieceBytes, std::max(kBlockBytes, total_bytes() / kPiecesAtLeast /
                                                                     kBlockBytes * kBlockBytes));
}

size_t Staging::piece_bytes(size_t total) const {
  const size_t share = total / kPiecesOfACopy / kBlockBytes * kBlockBytes;
  return std::min(piece_bytes_, std::max(kLeastPieceBytes, share));
}

std::byte* Staging::try_acquire(size_t blocks) {
  std::lock_guard lock(mutex_);
  // First fit: what was used last is in the processor's cache.
  for (size_t at = 0, run = 0; at < blocks_.size();) {
    run = blocks_[at] ? 0 : run + 1;
    ++at;
    if (run < blocks) continue;
    std::fill(blocks_.begin() + static_cast<ptrdiff_t>(at - run),
              blocks_.begin() + static_cast<ptrdiff_t>(at), true);
    return base_ + (at - run) * kBlockBytes;
  }
  return nullptr;
}

std::byte* Staging::acquire_if_free(size_t bytes) {
  const size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  return blocks == 0 || blocks > blocks_.size() ? nullptr : try_acquire(blocks);
}

std::byte* Staging::acquire(size_t bytes) {
  const size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  if (blocks == 0 || blocks > blocks_.size()) return nullptr;
  if (std::byte* piece = try_acquire(blocks)) return piece;
  link_.poll();
  std::byte* piece = nullptr;
  link_.wait_until([&] { return piece != nullptr || (piece = try_acquire(blocks)) != nullptr; });
  return piece;
}

void Staging::release(std::byte* piece, size_t bytes) {
  const size_t first = static_cast<size_t>(piece - base_) / kBlockBytes;
  const size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  std::lock_guard lock(mutex_);
  std::fill(blocks_.begin() + static_cast<ptrdiff_t>(first),
            blocks_.begin() + static_cast<ptrdiff_t>(first + blocks), false);
}

Staging& staging(WorkerLink& link) {
  static Staging* staging = new Staging(link);
  return *staging;
}

}  // namespace sluice::guest
