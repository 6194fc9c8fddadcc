/* SPDX-License-Identifier: Apache-2.0 */
// The tags of abi/cuda_calls.h: what each parameter of a driver call is, and so how it crosses the
// channel. The guest's stub (guest-agent/shim/session/call_stub.h) and the worker's dispatch
// (mediator/worker/calls/dispatch.h) are both derived from them. Types only; no state, no code.
//
// Wire format of a generic call, little-endian, without padding between arguments:
//   request, behind sluice_record: first, in parameter order,
//     In: the value           Dev, Address: u64   HIn, HInOrNull, HEnd: u64 wire handle
//     Out, HOut, OutBuf, OutArray: u8, 1 if the pointer is not null
//     InOut: the value
//     CStr: u32 bytes, then the bytes without NUL
//     InStruct: its bytes
//     InStructOrNull: u8, 1 if the pointer is not null; then its bytes, zero if it is null
//   then, in parameter order, InBuf, InArray: the bytes. Zero bytes up to the record's end.
//   reply, behind sluice_completion, only if status is CUDA_SUCCESS: in parameter order, for those
//   whose pointer was not null, Out, InOut: the value; HOut: u64; OutBuf: its bytes; OutArray: its
//   elements.
#pragma once

#include <cstdint>

#include "abi/wire.h"

namespace sluice::calls {

struct In {};  // a number, an enumerator or a plain struct without pointers
struct InStruct {
};  // one struct that the call reads, not null; what pointers it has are only numbers to the host
struct InStructOrNull {};  // the same, or null
struct Out {};             // the call writes one value there; may be null
struct InOut {};           // the call reads one value there and writes it anew; not null
struct CStr {};            // a NUL-terminated string, not null
template <int N>
struct InBuf {};  // parameter N (from 0) says how many bytes
template <int N, int Less = 0>
struct InArray {};  // parameter N, less `Less` (at least 0), says how many elements
template <int N>
struct OutBuf {};  // parameter N says how many bytes; at most kMaxOutBytes
template <int N>
struct OutArray {};  // parameter N says how many elements; at most kMaxOutBytes together
template <sluice_handle_kind Kind>
struct HIn {};  // a live handle of this kind
template <sluice_handle_kind Kind>
struct HInOrNull {};
template <sluice_handle_kind Kind>
struct HEnd {};  // as HIn; after success it is no handle any more
template <sluice_handle_kind Kind>
struct HOut {};  // the call makes a handle; not null
struct Dev {};   // a device address that lies in an allocation of the session
struct Address {
};  // a pointer that is a number for the driver: neither it nor the worker follows it

// Who waits for the status, and when the worker makes the call (abi/cuda_calls.h).
enum class Status { kReply, kAtOnce, kAfterWork, kQueued };

// More than any name, and safely inside one completion record.
inline constexpr uint32_t kMaxOutBytes = SLUICE_RECORD_MAX_BYTES / 2;

template <class... Tags>
struct TagList {
  static constexpr int kCount = sizeof...(Tags);
};

}  // namespace sluice::calls
