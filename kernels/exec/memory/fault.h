// SPDX-License-Identifier: Apache-2.0
// Faults: what a kernel did that a GPU would report as an error. A fault ends the block (the caller
// ends the launch); it never ends the host process. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::exec {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

enum class FaultKind : uint8_t {
  kNone = 0,
  kOutOfBounds,    // no mapped range holds the whole access (also: freed memory, null)
  kReadOnly,       // a store or atomic to a range that is mapped read-only
  kMisaligned,     // address not a multiple of the access (vector: of the whole vector)
  kSharedBounds,   // beyond static + dynamic shared memory, the block's or another's of its cluster
  kNoBlock,        // shared memory of a block that is not in the cluster, or has ended
  kOthersShared,   // .shared of another block's memory, which only shared::cluster may access
  kLocalBounds,    // beyond the thread's local memory
  kStackOverflow,  // calls or alloca need more local memory than the thread has
  kWrongSpace,     // atomic or store on a space that cannot take it
  kTrap,           // trap or brkpt
  kAssert,         // __assertfail; `detail` holds its message
  kBadFree,        // free of what is no allocation of malloc's
  kDeadlock,       // every warp waits at a barrier or warp-wide operation that nobody can reach
  kBadBarrier,     // barrier number above 15, or a thread count that is no multiple of 32;
                   // strict: mbarrier.init on a valid object, mbarrier.inval on another
  kBadRegisters,   // setmaxnreg.dec to more registers than the warp has, or .inc to fewer
  kBadTensorMap,   // a copy by what is no tensor map, or by one of another rank or kind
  kBadCall,        // indirect call to something that is not a function, or call stack too deep
};
const char* to_string(FaultKind kind);

// An address for people: "0x7f10".
std::string hex(uint64_t value);

struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::string kernel;    // entry name
  uint32_t line = 0;     // line in the PTX text, from 1
  Dim3 block;            // %ctaid
  Dim3 thread;           // %tid of the lowest faulting lane
  uint64_t address = 0;  // as the instruction saw it (space-relative for .shared/.local)
  uint32_t bytes = 0;    // size of the access; 0: it was none
  std::string space;     // the state space that the instruction names; "generic" if it names none
  std::string detail;    // text for people

  // One line: kind, kernel, PTX line, block, thread, access, and what is near it.
  std::string describe() const;
};

}  // namespace sluice::exec
