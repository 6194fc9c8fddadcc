// SPDX-License-Identifier: Apache-2.0
// HandleTable: the pointers that the CUDA API gives out, none of which is a pointer. A handle holds
// the object's type, slot and generation; a garbage, stale or foreign handle is simply not found
// and never dereferenced. Objects are shared: one that is destroyed while another thread uses it
// lives on until that thread is done.
//
// Threads: any. Owned by the library's state, one table per type.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace sluice::softgpu {

// Bits 63:56 type, 55:32 generation, 31:0 slot + 1. The type makes handles larger than any user
// address, and different from the special stream handles 1 and 2.
enum class HandleType : uint64_t {
  kContext = 0xc1,
  kModule = 0xc2,
  kFunction = 0xc3,
  kStream = 0xc4,
  kEvent = 0xc5,
  kLibrary = 0xc6,
  kKernel = 0xc7,
  kArray = 0xc8,
  kResourceDesc = 0xc9,
  kGreenContext = 0xca,
  kGreenView = 0xcb,  // a CUcontext that stands for a green context
  kMipmap = 0xcc,
  kLink = 0xcf,
};

template <class Object, class Handle, HandleType kType>
class HandleTable {
 public:
  Handle add(std::shared_ptr<Object> object) {
    std::unique_lock guard(mutex_);
    uint32_t index;
    if (free_.empty()) {
      index = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    slots_[index].object = std::move(object);
    return encode(index, slots_[index].generation);
  }

  // Null when the handle names nothing (any more).
  std::shared_ptr<Object> find(Handle handle) const {
    std::shared_lock guard(mutex_);
    const Slot* slot = slot_of(handle);
    return slot == nullptr ? nullptr : slot->object;
  }

  // Takes the object out of the table; null when there was none.
  std::shared_ptr<Object> remove(Handle handle) {
    std::unique_lock guard(mutex_);
    Slot* slot = const_cast<Slot*>(slot_of(handle));
    if (slot == nullptr) return nullptr;
    std::shared_ptr<Object> object = std::move(slot->object);
    slot->object = nullptr;
    slot->generation = (slot->generation + 1) & kGenerationMask;
    free_.push_back(static_cast<uint32_t>(slot - slots_.data()));
    return object;
  }

  // The same, and the next add_again() gives its object this very handle.
  std::shared_ptr<Object> vacate(Handle handle) {
    {
      std::unique_lock guard(mutex_);
      Slot* slot = const_cast<Slot*>(slot_of(handle));
      if (slot == nullptr) return nullptr;
      if (!vacated_) {
        vacated_ = static_cast<uint32_t>(slot - slots_.data());
        return std::exchange(slot->object, nullptr);
      }
    }
    return remove(handle);
  }
  Handle add_again(std::shared_ptr<Object> object) {
    {
      std::unique_lock guard(mutex_);
      if (vacated_) {
        const uint32_t index = *std::exchange(vacated_, std::nullopt);
        slots_[index].object = std::move(object);
        return encode(index, slots_[index].generation);
      }
    }
    return add(std::move(object));
  }

  // Takes out every object for which `gone` says true.
  template <class Predicate>
  void remove_if(Predicate gone) {
    std::vector<std::shared_ptr<Object>> removed;  // let go of without the lock
    std::unique_lock guard(mutex_);
    for (uint32_t index = 0; index < slots_.size(); ++index) {
      Slot& slot = slots_[index];
      if (!slot.object || !gone(*slot.object)) continue;
      removed.push_back(std::move(slot.object));
      slot.object = nullptr;
      slot.generation = (slot.generation + 1) & kGenerationMask;
      free_.push_back(index);
    }
    guard.unlock();
  }

  static bool is_of_type(Handle handle) {
    return reinterpret_cast<uint64_t>(handle) >> 56 == static_cast<uint64_t>(kType);
  }

 private:
  static constexpr uint32_t kGenerationMask = 0xff'ffff;
  struct Slot {
    uint32_t generation = 1;
    std::shared_ptr<Object> object;
  };

  static Handle encode(uint32_t index, uint32_t generation) {
    return reinterpret_cast<Handle>((static_cast<uint64_t>(kType) << 56) |
                                    (uint64_t{generation} << 32) | (uint64_t{index} + 1));
  }
  const Slot* slot_of(Handle handle) const {
    const uint64_t word = reinterpret_cast<uint64_t>(handle);
    const uint64_t index = (word & 0xffff'ffff) - 1;  // 0 wraps to something too large
    if (!is_of_type(handle) || index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    if (slot.generation != ((word >> 32) & kGenerationMask) || !slot.object) return nullptr;
    return &slot;
  }

  mutable std::shared_mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::optional<uint32_t> vacated_;  // slot that is neither free nor taken
};

}  // namespace sluice::softgpu
