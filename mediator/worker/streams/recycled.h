// SPDX-License-Identifier: Apache-2.0
// Recycled: an allocator for objects that come and go one by one, many at a time: launches in a
// queue. It keeps freed blocks, the newest first, because that one is in the processor's cache. The
// C library's own cache of this kind holds seven of a size, a queue of launches more.
//
// Any thread; a list for each type, of the process. Keeps at most kKept blocks.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

namespace sluice::worker {

template <class T>
class Recycled {
 public:
  using value_type = T;
  Recycled() = default;
  template <class U>
  Recycled(const Recycled<U>&) {}

  T* allocate(size_t n) {
    if (n == 1) {
      List& list = kept();
      std::lock_guard lock(list.mutex);
      if (!list.blocks.empty()) {
        void* block = list.blocks.back();
        list.blocks.pop_back();
        return static_cast<T*>(block);
      }
    }
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* block, size_t n) {
    if (n == 1) {
      List& list = kept();
      std::lock_guard lock(list.mutex);
      if (list.blocks.size() < kKept) return list.blocks.push_back(block);
    }
    ::operator delete(block);
  }
  friend bool operator==(const Recycled&, const Recycled&) { return true; }

 private:
  static_assert(alignof(T) <= alignof(std::max_align_t));
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kKept = 0;  // so that a use behind the end is seen
#else
  static constexpr size_t kKept = 128;
#endif
  struct List {
    List() { blocks.reserve(kKept); }
    std::mutex mutex;
    std::vector<void*> blocks;
  };
  // Never destroyed: objects may end later than static ones.
  static List& kept() {
    static List& list = *new List;
    return list;
  }
};

}  // namespace sluice::worker
