// SPDX-License-Identifier: Apache-2.0
// RunQueue: which block runs next, of those that are on SMs and in no thread's slice.
//
//   hot      in the middle of something
//   cold     not begun
//   polling  the last slice only polled, so others go first
//
// Mostly in that order; every so many picks one of the others is the first, so that none waits for
// ever. Owned by a GridRunner, used under its lock. `Item` is a pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace sluice::softgpu {

template <class Item>
class RunQueue {
 public:
  enum class Kind : uint8_t { kHot, kCold, kPolling };
  // Of this many picks one goes to cold ones, and one to polling ones, even while there are hot
  // ones.
  static constexpr uint64_t kPicksPerOther = 16;

  void add(Item item, Kind kind) { of(kind).push_back(item); }
  // The next one; null: there is none.
  Item pick() {
    const uint64_t turn = picks_++ % kPicksPerOther;
    std::deque<Item>* order[3] = {&hot_, &cold_, &polling_};
    if (turn == 0) std::swap(order[0], order[1]);
    if (turn == kPicksPerOther / 2) std::swap(order[0], order[2]);
    for (std::deque<Item>* queue : order) {
      if (queue->empty()) continue;
      const Item item = queue->front();
      queue->pop_front();
      return item;
    }
    return nullptr;
  }
  template <class Which>
  void remove_if(Which which) {
    for (std::deque<Item>* queue : {&hot_, &cold_, &polling_}) std::erase_if(*queue, which);
  }

  bool empty() const { return hot_.empty() && cold_.empty() && polling_.empty(); }
  bool any_cold() const { return !cold_.empty(); }
  // Some that do more than poll.
  bool any_working() const { return !hot_.empty() || !cold_.empty(); }
  size_t polling() const { return polling_.size(); }

 private:
  std::deque<Item>& of(Kind kind) {
    return kind == Kind::kHot ? hot_ : kind == Kind::kCold ? cold_ : polling_;
  }

  std::deque<Item> hot_, cold_, polling_;
  uint64_t picks_ = 0;
};

}  // namespace sluice::softgpu
