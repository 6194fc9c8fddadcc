// PTX text in, PTX text out: every entry keeps its original, byte for byte, and gets an evictable
// clone `<entry>__sluice` behind it where a pass can make one.
//
// Pure and deterministic (same text, same bytes), so that a host can check what a guest did; any
// thread. Runs in the guest's libcuda when a program loads a module, in sluice-worker, and in
// sluice-ptx. It never makes a kernel wrong: what it does not understand stays opaque, with the
// reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/passes/pass.h"
#include "mediator/base/result.h"

namespace sluice::passes {

// What the launcher and a person must know about one kernel.
struct KernelReport {
  std::string name;  // of the original entry; the clone's has SLUICE_CLONE_SUFFIX
  Tier tier = Tier::kOpaque;
  bool evictable = false;  // a clone exists
  std::string reason;      // why not; empty where evictable
  // Parameter buffer of the original in bytes, and where in the clone's the 64-byte block of
  // abi/preempt.h stands (8-byte aligned; 0 without a clone).
  std::uint64_t param_bytes_original = 0;
  std::uint64_t param_offset_of_block = 0;
  bool uses_dynamic_shared = false;  // refers to an extern shared array
  SlotPlace slot = SlotPlace::kNone;
};

struct Rewritten {
  std::string text;
  std::vector<KernelReport> kernels;  // all entries with a body, in the order of the text
};

// An error only where the text cannot be cut into statements (guest's fault; line and column).
Result<Rewritten> rewrite_module(std::string text);
Rewritten rewrite_module(const ptx::Module& module);

}  // namespace sluice::passes
