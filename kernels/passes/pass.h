// What a pass is: one way to make a kernel evictable, or the reason why not.
//
// Owner: rewrite_module() (rewrite.h), which tries the passes in the order of kPasses for each
// entry; the first that makes a clone wins. A new pass is one file, one declaration here and one
// row in rewrite.cc. Passes are pure functions: same module, same bytes; any thread. They run where
// programs load their modules (guest) and where the host checks them (worker).
#pragma once

#include <string>
#include <string_view>

#include "kernels/passes/facts.h"
#include "kernels/ptx/module.h"

namespace sluice::passes {

// How a kernel can be taken off the GPU. Numbers go into logs: append only.
enum class Tier {
  kOpaque = 0,  // it cannot: gated at launch, or time-sliced by the hardware
  kPlain = 1,   // persistent loop over block-tasks (EffiSha, FLEP)
};
const char* tier_name(Tier tier);  // "opaque", "plain"

// Where the clone keeps its two 16-byte broadcast slots, and so what its launcher must do.
enum class SlotPlace {
  kNone = 0,        // no clone
  kStatic = 1,      // 32 bytes of static shared memory; nothing to do
  kDynamicEnd = 2,  // the last 32 bytes of dynamic shared memory: round the size that the program
                    // asked for up to 16 and add kSlotBytes
};
inline constexpr std::uint32_t kSlotBytes = 32;

struct PassInput {
  const ptx::Module& module;
  const ptx::Function& entry;  // has a body
  const KernelFacts& facts;
  std::string_view prefix;  // "sluice1_": no identifier of the module contains it
};

struct Outcome {
  std::string clone;   // PTX of the new entry; empty: this pass does not fit
  std::string reason;  // why not, for people: "uses thread-block clusters"; empty with a clone
  Tier tier = Tier::kOpaque;
  SlotPlace slot = SlotPlace::kNone;
};

using Pass = Outcome (*)(const PassInput& input);

Outcome run_plain(const PassInput& input);   // plain.cc
Outcome run_opaque(const PassInput& input);  // opaque.cc: fits every kernel, makes no clone

}  // namespace sluice::passes
