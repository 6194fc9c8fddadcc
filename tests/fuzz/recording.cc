// SPDX-License-Identifier: Apache-2.0
// Recorded programs (tests/cccl).
#include <stdexcept>
#include <variant>

#include "kernels/suite/catalog/trace.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {

bool check_recording(std::string_view text) {
  try {
    const suite::Trace trace = suite::parse_trace(text);
    for (const suite::Step& step : trace.work.steps)
      if (const auto* launch = std::get_if<suite::Launch>(&step))
        for (const auto& pointer : launch->pointers)
          require(pointer.buffer < trace.work.buffers.size() &&
                      pointer.offset + std::size_t{8} <= launch->params.size(),
                  "a pointer names a buffer and lies in the parameters", launch->kernel);
    return true;
  } catch (const std::runtime_error& e) {
    require(std::string_view(e.what()).starts_with("trace, line "), "an error names its line",
            e.what());
    return false;
  }
}

}  // namespace sluice::fuzz
