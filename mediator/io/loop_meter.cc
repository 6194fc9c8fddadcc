// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/loop_meter.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "mediator/base/clock.h"
#include "mediator/base/process/processor_time.h"

namespace sluice::io {
namespace {

thread_local LoopMeter::Figures loop_figures;
thread_local uint64_t comes_from_cpu_ns = 0;  // the end of the last call, or before_poll()
// What lies between two calls and is more than this was not for the second of them alone.
constexpr uint64_t kMostBetweenNs = 100'000;

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
void LoopMeter::before_poll() { comes_from_cpu_ns = thread_cpu_ns(); }

LoopMeter::Call::Call(const std::type_info& callback, uint64_t* cost_ns)
    : callback_(callback), wall_ns_(monotonic_ns()), cpu_ns_(thread_cpu_ns()), cost_ns_(cost_ns) {}

LoopMeter::Call::~Call() {
  const uint64_t end_cpu_ns = thread_cpu_ns();
  const Stall stall{monotonic_ns() - wall_ns_, end_cpu_ns - cpu_ns_, &callback_};
  if (cost_ns_) *cost_ns_ = stall.cpu_ns + std::min(cpu_ns_ - comes_from_cpu_ns, kMostBetweenNs);
  comes_from_cpu_ns = end_cpu_ns;
  Figures& f = loop_figures;
  ++f.calls;
  f.over_10_ms += stall.wall_ns > 10'000'000;
  f.over_50_ms += stall.wall_ns > 50'000'000;
  if (stall.wall_ns > f.longest.wall_ns) f.longest = stall;
  if (stall.cpu_ns > f.busiest.cpu_ns) f.busiest = stall;
}

}  // namespace sluice::io
