// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/session/trace.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi/cuda_calls.h"
#include "guest-agent/shim/session/log.h"
#include "mediator/base/clock.h"
#include "mediator/base/cuda_errors.h"

namespace sluice::guest {

bool tracing() {
  static const bool on = [] {
    const char* what = ::getenv("SLUICE_TRACE");
    return what != nullptr && std::strcmp(what, "calls") == 0;
  }();
  return on;
}

Traced::Traced(uint16_t opcode) : on_(tracing()) {
  if (!on_) return;
  line_ = std::string(calls::call_name(opcode)) + "(";
  begin_ns_ = monotonic_ns();
}

void Traced::text(const std::string& value) {
  line_ += separator_ + value;
  separator_ = ", ";
}
void Traced::number(int64_t value) { text(std::to_string(value)); }
void Traced::address(uint64_t value) {
  char digits[20];
  std::snprintf(digits, sizeof digits, "0x%" PRIx64, value);
  text(digits);
}

void Traced::describe(const sluice_copy& c) {
  address(c.dst);
  address(c.src);
  number(static_cast<int64_t>(c.width));
  number(static_cast<int64_t>(c.height));
}
void Traced::describe(const sluice_memset& m) {
  address(m.dst);
  number(m.value);
  number(static_cast<int64_t>(m.width));
  number(static_cast<int64_t>(m.height));
}
void Traced::describe(const sluice_synchronize& s) { address(s.handle); }

CUresult Traced::end(CUresult status, bool queued) {
  if (!on_) return status;
  const auto waited = static_cast<double>(monotonic_ns() - begin_ns_) / 1000;
  const char* name = cuda_error_name(status);
  trace_line("%s) = %s, %.1f us", line_.c_str(),
             queued && status == CUDA_SUCCESS ? "queued"
             : name != nullptr                ? name
                                              : "an unknown error",
             waited);
  return status;
}

}  // namespace sluice::guest
