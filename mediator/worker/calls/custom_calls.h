// SPDX-License-Identifier: Apache-2.0
// Handlers of the custom calls: one for each row of SLUICE_CUSTOM_CALLS (abi/cuda_calls.h),
// declared and found through that table. A row without a handler does not link.
//
//   void handle_NAME(WorkerSession& s, const Call& call, const STRUCT& request, tail)
//
// `request` and `tail` are a private copy, and as long as the record says; nothing else of them has
// been checked. A handler answers the call, now or later. Decoder, without the session's lock.
#pragma once

#include <cstddef>
#include <span>

#include "abi/cuda_calls.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

#define SLUICE_DECLARE_HANDLER(opcode, name, Request, tail)                      \
  void handle_##name(WorkerSession& s, const Call& call, const Request& request, \
                     std::span<const std::byte> bytes_behind);
SLUICE_CUSTOM_CALLS(SLUICE_DECLARE_HANDLER)
#undef SLUICE_DECLARE_HANDLER

}  // namespace sluice::worker
