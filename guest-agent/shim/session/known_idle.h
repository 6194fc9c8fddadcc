// SPDX-License-Identifier: Apache-2.0
// KnownIdle: whether all that the program has queued in its context is known to have ended.
//
// A copy from pageable memory to the device may return as soon as that memory has been read, but
// only after all earlier work of its stream has ended (CUDA's API synchronisation behaviour). Where
// that is known already, the copy need not wait for the worker at all.
//
// Of one context: the one in which work was queued last. Of the others nothing is known. Owned by
// the link to the worker, under its submit lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "abi/wire.h"

namespace sluice::guest {

// What a record does to the streams of its context.
struct Effect {
  enum Kind : uint8_t {
    kNothing,  // queues no work
    kWork,     // queues work in `stream`
    kWait,     // its answer says that all earlier work of `stream` has ended
    kWaited,   // both: work in `stream`, answered when it has ended
    kEarly     // a copy in the legacy stream whose call returns before it has ended
  };
  static constexpr uint64_t kAll = ~uint64_t{0};  // every stream, or nobody knows which

  Kind kind = kWork;
  uint64_t stream = kAll;
};

// Whether the record's answer comes when work has ended.
inline bool tells_of_ends(const Effect& effect) {
  return effect.kind == Effect::kWait || effect.kind == Effect::kWaited;
}

inline bool is_legacy(uint64_t stream) { return stream <= 1; }  // it has two names

// By the opcode alone. Custom calls that queue something queue it in any stream.
Effect effect_of(uint16_t opcode);
// By the body, too.
template <class Body>
Effect effect_of(uint16_t opcode, const Body& body) {
  if constexpr (requires { body.stream; }) {
    if constexpr (requires { body.wait; })
      return {body.wait != 0 ? Effect::kWaited : Effect::kWork, body.stream};
    else
      return {Effect::kWork, body.stream};
  } else {
    return effect_of(opcode);
  }
}
inline Effect effect_of(uint16_t opcode, const sluice_synchronize& body) {
  if (opcode == SLUICE_CALL_HOST_FUNC) return {Effect::kWork, body.handle};
  // A question's answer brings nothing that kernels have printed: a wait must still be able to.
  if (opcode == SLUICE_CALL_QUERY) return {Effect::kNothing, 0};
  switch (body.what) {
    case SLUICE_SYNC_CONTEXT:
      return {Effect::kWait, Effect::kAll};
    case SLUICE_SYNC_STREAM:
      return {Effect::kWait, body.handle};
  }
  return {Effect::kNothing, 0};
}

class KnownIdle {
 public:
  // What is known once a record's work has ended: of its stream, all up to this has.
  struct Mark {
    uint64_t context = 0, stream = 0;
    uint64_t work = 0;  // 0: nothing new
    bool operator==(const Mark&) const = default;
  };

  // A record is about to be queued.
  Mark record(uint64_t context, const Effect& effect) {
    if (effect.kind == Effect::kNothing || effect.kind == Effect::kEarly) return {};
    turn_to(context);
    const uint64_t stream = is_legacy(effect.stream) ? 0 : effect.stream;
    if (effect.kind != Effect::kWait) queued(stream);
    return Mark{context, stream, work_};
  }
  // It has ended, without an error.
  void ended(const Mark& mark) {
    if (mark.work == 0 || mark.context != context_) return;
    for (Busy& busy : busy_) {
      if (busy.work != 0 && busy.work <= mark.work &&
          (mark.stream == Effect::kAll || mark.stream == busy.stream))
        busy = {};
    }
    if (mark.stream == Effect::kAll && elsewhere_ <= mark.work) elsewhere_ = 0;
  }
  bool idle(uint64_t context) const {
    return context == context_ && elsewhere_ == 0 &&
           std::all_of(std::begin(busy_), std::end(busy_), [](const Busy& b) { return !b.work; });
  }

 private:
  static constexpr uint64_t kPerThread = 2;  // another stream for each thread
  struct Busy {
    uint64_t stream = 0;
    uint64_t work = 0;  // the last of what is not known to have ended; 0: none
  };

  void queued(uint64_t stream) {
    ++work_;
    Busy* place = nullptr;
    if (stream != kPerThread && stream != Effect::kAll) {
      for (Busy& busy : busy_) {
        if (busy.work != 0 && busy.stream == stream) {
          place = &busy;
          break;
        }
        if (busy.work == 0 && place == nullptr) place = &busy;
      }
    }
    if (place != nullptr)
      *place = {stream, work_};
    else
      elsewhere_ = work_;
  }
  // The first context has nothing queued; of what another one has, nothing is known.
  void turn_to(uint64_t context) {
    if (context == context_) return;
    if (context_ != 0) elsewhere_ = ++work_;
    context_ = context;
  }

  uint64_t context_ = 0;
  uint64_t work_ = 1;  // counted since the program's start
  Busy busy_[8];       // streams with work that may not have ended
  uint64_t elsewhere_ =
      0;  // the same of streams that are not there: only their context's end tells
};

}  // namespace sluice::guest
