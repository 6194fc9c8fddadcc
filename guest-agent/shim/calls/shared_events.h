// SPDX-License-Identifier: Apache-2.0
// Events of several programs of a VM (cuIpcGetEventHandle and kin), of what each of them has
// anyway: device memory that both map, and a page of the guest's memory.
//
//   page     how often the event was recorded, by whomever: records take their numbers from it; and
//            which process made each of the last kSlots records
//   memory   kSlots words. Record n writes n into word n % kSlots when its stream is there; who
//            waits for it waits until the word is at least n
//
// A record whose process has ended never ends. A call that waits for it gets
// CUDA_ERROR_INVALID_HANDLE. A stream that waits for it continues, and the program gets that error
// from its next synchronising call: a thread watches the processes that streams wait for.
//
// So records of several streams may end in any order. An event is an ordinary one until it is first
// exported. Only where events are exported or opened does any of this run. Any thread.
#pragma once

#include <optional>

#include "abi/cuda_driver.h"

namespace sluice::guest {

// What the call answers if the event is one of several programs; else nothing.
std::optional<CUresult> record_shared(CUevent event, CUstream stream);
std::optional<CUresult> wait_for_shared(CUstream stream, CUevent event);
std::optional<CUresult> query_shared(CUevent event);
std::optional<CUresult> synchronize_shared(CUevent event);
// The event ends in this program.
void forget_shared(CUevent event);

}  // namespace sluice::guest
