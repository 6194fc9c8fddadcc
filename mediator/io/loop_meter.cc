// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/loop_meter.h"

#include <cxxabi.h>
#include <time.h>

#include <cstdlib>
#include <memory>

#include "mediator/base/clock.h"

namespace sluice::io {
namespace {

thread_local LoopMeter::Figures loop_figures;

uint64_t cpu_time_ns() {
  timespec ts;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ts.tv_nsec);
}

}  // namespace

std::string LoopMeter::Stall::where() const {
  if (!callback) return "";
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(callback->name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : callback->name();
}

const LoopMeter::Figures& LoopMeter::figures() { return loop_figures; }
void LoopMeter::forget() { loop_figures = {}; }

LoopMeter::Call::Call(const std::type_info& callback)
    : callback_(callback), wall_ns_(monotonic_ns()), cpu_ns_(cpu_time_ns()) {}

LoopMeter::Call::~Call() {
  const Stall stall{monotonic_ns() - wall_ns_, cpu_time_ns() - cpu_ns_, &callback_};
  Figures& f = loop_figures;
  ++f.calls;
  f.over_10_ms += stall.wall_ns > 10'000'000;
  f.over_50_ms += stall.wall_ns > 50'000'000;
  if (stall.wall_ns > f.longest.wall_ns) f.longest = stall;
  if (stall.cpu_ns > f.busiest.cpu_ns) f.busiest = stall;
}

}  // namespace sluice::io
