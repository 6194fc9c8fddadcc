// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/memory/texture.h"

#include <mutex>

namespace sluice::exec {
namespace {

// In front of the counter, so that small integers and addresses are no handles.
constexpr uint64_t kHandleMark = 0x7e00'0000'0000'0000ull;

}  // namespace

uint64_t TextureTable::add(const TextureDescriptor& descriptor) {
  std::unique_lock guard(mutex_);
  const uint64_t handle = kHandleMark | next_++;
  descriptors_.emplace(handle, std::make_shared<const TextureDescriptor>(descriptor));
  return handle;
}

bool TextureTable::remove(uint64_t handle) {
  std::unique_lock guard(mutex_);
  return descriptors_.erase(handle) != 0;
}

std::shared_ptr<const TextureDescriptor> TextureTable::find(uint64_t handle) const {
  std::shared_lock guard(mutex_);
  const auto found = descriptors_.find(handle);
  return found == descriptors_.end() ? nullptr : found->second;
}

}  // namespace sluice::exec
