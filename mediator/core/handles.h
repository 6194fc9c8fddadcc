// SPDX-License-Identifier: Apache-2.0
// HandleTable: the objects of one session by the handles that its program knows ({kind, generation,
// index}, abi/wire.h). A handle that was never given out, is of another kind or has ended finds
// nothing, however it was made up: the place in the table is checked first, then its generation.
//
// Owned by the session of a sluice-worker; not thread-safe (the session locks). Holds shared
// pointers: an object that was removed lives on while queued work uses it. It knows no driver.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/wire.h"

namespace sluice {

// What a handle names. Each kind of object derives from it, and only one type is used for each
// kind.
struct HandleObject {
  virtual ~HandleObject() = default;
};

class HandleTable {
 public:
  static constexpr uint32_t kKinds = SLUICE_HANDLE_KINDS;  // from 1
  // Objects of one kind alive at once in one session. They cost memory of the host outside the
  // device-memory quota: less, and programs with many functions fail; more, and a guest can hold
  // more.
  static constexpr uint32_t kMaxObjects = 1u << 16;
  static constexpr uint32_t kMaxGeneration = 0xffffff;

  // `generations`: how many handles a place may have one after another; tests want fewer.
  explicit HandleTable(uint32_t generations = kMaxGeneration) : generations_(generations) {}

  bool has_room(sluice_handle_kind kind) const {
    const Kind& k = kinds_[kind];
    return !closed_ && (!k.free.empty() || k.places.size() < kMaxObjects);
  }

  // The new object's handle; 0 if there is no room.
  uint64_t add(sluice_handle_kind kind, std::shared_ptr<HandleObject> object) {
    if (!has_room(kind)) return 0;
    Kind& k = kinds_[kind];
    uint32_t index;
    if (!k.free.empty()) {
      index = k.free.back();
      k.free.pop_back();
    } else {
      index = static_cast<uint32_t>(k.places.size());
      k.places.emplace_back();
    }
    Place& place = k.places[index];
    place.object = std::move(object);
    ++k.live;
    ++live_;
    return SLUICE_HANDLE(kind, place.generation, index);
  }

  // The live object of this kind with this handle, or null.
  std::shared_ptr<HandleObject> find(sluice_handle_kind kind, uint64_t guest_handle) const {
    const Place* place = at(kind, guest_handle);
    return place ? place->object : nullptr;
  }
  template <class T>
  std::shared_ptr<T> find(sluice_handle_kind kind, uint64_t guest_handle) const {
    return std::static_pointer_cast<T>(find(kind, guest_handle));
  }

  // The handle is no handle any more. Returns the object, or null if there was none.
  std::shared_ptr<HandleObject> remove(sluice_handle_kind kind, uint64_t guest_handle) {
    Place* place = const_cast<Place*>(at(kind, guest_handle));
    if (!place) return nullptr;
    auto object = std::move(place->object);
    Kind& k = kinds_[kind];
    --k.live;
    --live_;
    // A place whose generations are used up is never used again: an old handle could come true.
    if (place->generation < generations_) {
      ++place->generation;
      k.free.push_back(SLUICE_HANDLE_INDEX(guest_handle));
    }
    return object;
  }

  uint32_t live(sluice_handle_kind kind) const { return kinds_[kind].live; }
  uint32_t live() const { return live_; }  // of all kinds

  // As long as it is closed there is no room for a new object of any kind.
  void set_closed(bool closed) { closed_ = closed; }

  // Calls f(handle, object) for each live object of a kind. `f` must not add or remove.
  template <class F>
  void for_each(sluice_handle_kind kind, F&& f) const {
    const Kind& k = kinds_[kind];
    for (uint32_t i = 0; i < k.places.size(); ++i) {
      if (k.places[i].object) f(SLUICE_HANDLE(kind, k.places[i].generation, i), k.places[i].object);
    }
  }

 private:
  struct Place {
    std::shared_ptr<HandleObject> object;
    uint32_t generation = 1;
  };
  struct Kind {
    std::vector<Place> places;
    std::vector<uint32_t> free;
    uint32_t live = 0;
  };
  const Place* at(sluice_handle_kind kind, uint64_t guest_handle) const {
    if (SLUICE_HANDLE_KIND(guest_handle) != static_cast<uint32_t>(kind)) return nullptr;
    const Kind& k = kinds_[kind];
    const uint32_t index = SLUICE_HANDLE_INDEX(guest_handle);
    if (index >= k.places.size()) return nullptr;
    const Place& place = k.places[index];
    if (!place.object || place.generation != SLUICE_HANDLE_GENERATION(guest_handle)) return nullptr;
    return &place;
  }

  uint32_t generations_;
  uint32_t live_ = 0;
  bool closed_ = false;
  std::array<Kind, kKinds> kinds_;
};

}  // namespace sluice
