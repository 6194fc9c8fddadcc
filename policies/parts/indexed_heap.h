// SPDX-License-Identifier: Apache-2.0
// IndexedHeap: a binary heap of small dense ids that can be updated and removed by id. `Less`
// orders two ids by keys that live with the owner, who calls update() after changing one. Every
// operation is O(log n) and allocates only when a new largest id comes. Pure; one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "mediator/base/check.h"

namespace sluice::policy {

// An order by times, of which each id has one; of equal ones the lower id goes first.
struct SoonerAt {
  const std::vector<uint64_t>* at_ns;
  bool operator()(uint32_t a, uint32_t b) const {
    const uint64_t x = (*at_ns)[a], y = (*at_ns)[b];
    return x != y ? x < y : a < b;
  }
};

template <class Less>
class IndexedHeap {
 public:
  explicit IndexedHeap(Less less) : less_(std::move(less)) {}

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  uint32_t top() const { return heap_.front(); }
  bool contains(uint32_t id) const { return id < place_.size() && place_[id] != kNowhere; }

  void push(uint32_t id) {
    if (id >= place_.size()) place_.resize(id + 1, kNowhere);
    SLUICE_CHECK(place_[id] == kNowhere);
    heap_.push_back(id);
    place_[id] = static_cast<uint32_t>(heap_.size() - 1);
    up(place_[id]);
  }
  void remove(uint32_t id) {
    const uint32_t at = place_[id];
    const uint32_t last = static_cast<uint32_t>(heap_.size() - 1);
    if (at != last) {
      put(at, heap_[last]);
    }
    heap_.pop_back();
    place_[id] = kNowhere;
    if (at != last) update(heap_[at]);
  }
  void update(uint32_t id) {
    up(place_[id]);
    down(place_[id]);
  }
  // After all keys have changed; O(n).
  void rebuild() {
    for (size_t at = heap_.size() / 2; at-- > 0;) down(static_cast<uint32_t>(at));
  }
  // visit(id) for the least, and for the two below each for which it says true: their keys are no
  // less.
  template <class Visit>
  void descend(Visit&& visit, size_t at = 0) const {
    if (at >= heap_.size() || !visit(heap_[at])) return;
    descend(visit, 2 * at + 1);
    descend(visit, 2 * at + 2);
  }

 private:
  static constexpr uint32_t kNowhere = 0xffffffffu;
  void put(uint32_t at, uint32_t id) {
    heap_[at] = id;
    place_[id] = at;
  }
  void up(uint32_t at) {
    const uint32_t id = heap_[at];
    while (at > 0) {
      const uint32_t parent = (at - 1) / 2;
      if (!less_(id, heap_[parent])) break;
      put(at, heap_[parent]);
      at = parent;
    }
    put(at, id);
  }
  void down(uint32_t at) {
    const uint32_t id = heap_[at];
    for (;;) {
      uint32_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && less_(heap_[child + 1], heap_[child])) ++child;
      if (!less_(heap_[child], id)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, id);
  }

  Less less_;
  std::vector<uint32_t> heap_, place_;
};

}  // namespace sluice::policy
