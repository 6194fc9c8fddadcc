// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/filler.h"

#include <algorithm>
#include <limits>

#include "mediator/base/log.h"
#include "mediator/worker/launch/driver_calls.h"

namespace sluice::worker {

namespace {

// A block that takes time and room, but no memory, and sleeps: a warp that only reads the clock
// takes issue slots from the chain's last blocks on its SM. One of 1024 asks the host whether its
// fill is over, for all: each question crosses the bus.
constexpr char kFill[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry sluice_fill(.param .u64 p_stop, .param .u64 p_seen, .param .u32 p_fill,
                            .param .u32 p_cycles)
{
  .reg .pred %p<5>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<6>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra together;
  ld.param.u32 %r2, [p_fill];
  ld.param.u64 %rd1, [p_seen];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r3, %ctaid.x;
  and.b32 %r3, %r3, 1023;
  setp.ne.u32 %p2, %r3, 0;
  @%p2 bra ask;
  ld.param.u64 %rd2, [p_stop];
  cvta.to.global.u64 %rd2, %rd2;
  ld.volatile.global.u32 %r4, [%rd2];
  sub.u32 %r5, %r4, %r2;
  setp.lt.s32 %p3, %r5, 0;
  @%p3 bra ask;
  st.volatile.global.u32 [%rd1], %r4;
  bra together;
ask:
  ld.volatile.global.u32 %r4, [%rd1];
  sub.u32 %r5, %r4, %r2;
  setp.ge.s32 %p3, %r5, 0;
  @%p3 bra together;
  ld.param.u32 %r6, [p_cycles];
  cvt.u64.u32 %rd3, %r6;
  mov.u64 %rd4, %clock64;
  add.u64 %rd3, %rd3, %rd4;
wait:
  nanosleep.u32 300;
  mov.u64 %rd5, %clock64;
  setp.lt.u64 %p4, %rd5, %rd3;
  @%p4 bra wait;
together:
  bar.sync 0;
  ret;
}
)";
// Smaller: more warps that wake to read the clock, on SMs that work. Larger: less of an SM that
// gets free piece by piece is taken.
constexpr uint32_t kLeastThreads = 512, kMostThreads = 1024;

}  // namespace

void Filler::launched_above(ContextObject& context, int priority) {
  if (state_ == State::kNever) return;
  if (fills() && (context_ != &context || priority_ != priority)) stop();
  context_ = &context;
  priority_ = priority;
}

void Filler::launched_below(const ContextObject& context) {
  if (context_ != &context) return;
  if (fills()) stop();
  context_ = nullptr;
}

void Filler::follow(uint32_t queued, bool open) {
  if (!context_) return;
  if (!open || queued < (fills() ? 2 : kLeastChain)) {
    if (fills()) stop();
    // The next chain reports its priority anew.
    context_ = nullptr;
    return;
  }
  if (make_current(api_, context_->cu) != CUDA_SUCCESS) return;
  if (!is_ready(*context_)) return give_up();
  if (!fills()) {
    state_ = State::kFills;
    ++fill_;
  }
  if (!queue(places_[context_->id])) give_up();
}

void Filler::prepare(ContextObject& context) {
  if (state_ == State::kNever || make_current(api_, context.cu) != CUDA_SUCCESS) return;
  if (!is_ready(context)) give_up();
}

// The context is current.
bool Filler::is_ready(ContextObject& c) {
  Place& p = places_[c.id];
  return p.kernel || make(c, p);
}

void Filler::give_up() {
  log::warning("gaps of chains are not filled: the driver refuses what that needs");
  if (fills()) stop();
  state_ = State::kNever;
  context_ = nullptr;
}

void Filler::forget(const ContextObject& context) {
  launched_below(context);
  places_.erase(context.id);
}

// The context is current.
bool Filler::make(ContextObject& c, Place& p) {
  CUresult r = api_.cuModuleLoadDataEx(&p.module, kFill, 0, nullptr, nullptr);
  if (r == CUDA_SUCCESS && !p.stop) {
    void* memory = nullptr;
    r = api_.cuMemHostAlloc(&memory, sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP);
    p.stop = static_cast<uint32_t*>(memory);
    if (r == CUDA_SUCCESS) __atomic_store_n(p.stop, fill_, __ATOMIC_RELAXED);
  }
  if (r == CUDA_SUCCESS) r = api_.cuMemHostGetDevicePointer(&p.stop_address, p.stop, 0);
  if (r == CUDA_SUCCESS) r = api_.cuMemAlloc(&p.seen, sizeof(uint32_t));
  if (r == CUDA_SUCCESS) r = api_.cuMemcpyHtoD(p.seen, &fill_, sizeof fill_);
  for (CUevent& event : p.ended)
    if (r == CUDA_SUCCESS) r = api_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (r == CUDA_SUCCESS) r = api_.cuModuleGetFunction(&p.kernel, p.module, "sluice_fill");
  const uint64_t cycles =
      uint64_t{kBlockNs} * static_cast<uint64_t>(std::max(c.shape.clock_khz, 1));
  p.cycles = static_cast<uint32_t>(
      std::min<uint64_t>(cycles / 1'000'000, std::numeric_limits<uint32_t>::max()));
  return r == CUDA_SUCCESS && size_blocks(c, p);
}

// The smallest that together have all threads of an SM: in the last wave of a kernel of the chain
// an SM gets free piece by piece, and blocks of the others begin in those where ours do not fit.
bool Filler::size_blocks(const ContextObject& c, Place& p) const {
  const auto sms = static_cast<uint32_t>(std::max(c.shape.multiprocessors, 1));
  for (p.threads = kLeastThreads;; p.threads *= 2) {
    int of_sm = 0;
    if (api_.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &of_sm, p.kernel, static_cast<int>(p.threads), 0) != CUDA_SUCCESS ||
        of_sm <= 0)
      return false;
    const auto blocks = static_cast<uint32_t>(of_sm);
    p.blocks = blocks * kWaves * sms;
    if (p.threads == kMostThreads || uint64_t{blocks} * p.threads * sms >= c.shape.threads_at_once)
      return true;
  }
}

// As many grids as there is room for. The context is current.
bool Filler::queue(Place& p) {
  CUstream& stream = p.streams[priority_];
  if (!stream && api_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority_ + 1) !=
                     CUDA_SUCCESS)
    return false;
  for (uint32_t i = 0; i < kDepth; ++i) {
    if (p.queued[i]) {
      const CUresult r = api_.cuEventQuery(p.ended[i]);
      if (r == CUDA_ERROR_NOT_READY) continue;
      if (r != CUDA_SUCCESS) return false;
      p.queued[i] = false;
    }
    void* params[] = {&p.stop_address, &p.seen, &fill_, &p.cycles};
    if (api_.cuLaunchKernel(p.kernel, p.blocks, 1, 1, p.threads, 1, 1, 0, stream, params,
                            nullptr) != CUDA_SUCCESS)
      return false;
    if (api_.cuEventRecord(p.ended[i], stream) != CUDA_SUCCESS) return false;
    p.queued[i] = true;
    ++grids_;
  }
  return true;
}

void Filler::stop() {
  __atomic_store_n(places_[context_->id].stop, fill_, __ATOMIC_RELEASE);
  state_ = State::kIdle;
}

}  // namespace sluice::worker
