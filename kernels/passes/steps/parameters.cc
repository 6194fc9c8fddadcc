// SPDX-License-Identifier: Apache-2.0
// Rules one-parameter, isa-version: one block of parameters behind the original's, and the clone's
// name.
#include "kernels/passes/clone/clone.h"

namespace sluice::passes {

namespace {

// PTX ISA, "Kernel Function Parameters": 4,352 bytes up to ISA 8.0, of which the driver allows
// 4,096; 32,764 from 8.1 on sm_70 and later.
constexpr std::uint64_t kMaxParamBytesOld = 4096;
constexpr std::uint64_t kMaxParamBytes = 32764;
constexpr ptx::Module::Version kLargeParamVersion{8, 1};

}  // namespace

Finding place_parameters(Clone& clone) {
  const ptx::Function& f = clone.in.entry;
  constexpr std::uint64_t kAlign = SLUICE_PREEMPT_PARAMS_ALIGN;
  const std::uint64_t bytes =
      (f.param_bytes + kAlign - 1) / kAlign * kAlign + SLUICE_PREEMPT_PARAMS_BYTES;
  const bool large = clone.in.module.sm() >= 70;
  if (bytes > (large ? kMaxParamBytes : kMaxParamBytesOld))
    return {"parameters", "has " + std::to_string(f.param_bytes) +
                              " bytes of parameters, which leaves no room for the launch's"};
  for (const ptx::Variable& p : f.params)
    if (p.bytes == 0) return {"parameters", "has a parameter whose size is not known"};
  if (bytes > kMaxParamBytesOld && clone.in.module.version() < kLargeParamVersion)
    clone.version_needed = kLargeParamVersion;

  clone.parameters = clone.name("~launch");
  clone.edits.replace(f.name_range, std::string(f.name).append(clone.in.suffix));
  const std::string block = ".param .align " + std::to_string(kAlign) + " .b8 " + clone.parameters +
                            "[" + std::to_string(SLUICE_PREEMPT_PARAMS_BYTES) + "]";
  if (!f.params.empty()) {
    clone.edits.insert(f.params.back().range.end, std::string(",\n\t").append(block));
  } else if (f.has_param_list) {
    clone.edits.insert(f.params_range.begin, std::string("\n\t").append(block).append("\n"));
  } else {
    clone.edits.insert(f.name_range.end, std::string("(\n\t").append(block).append("\n)"));
  }
  return {};
}

}  // namespace sluice::passes
