// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/preempt/gpu.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mediator/base/grid_windows.h"

namespace sluice::bench {

void die(const std::string& message) {
  std::fprintf(stderr, "preempt_bench: %s\n", message.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) die(std::string(what) + ": " + gpu::describe(result));
}

std::uint64_t now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(t.tv_nsec);
}

Gpu::Gpu(const std::string& library) {
  auto loaded = gpu::load_driver(library);
  if (!loaded) die(loaded.error().message);
  api = *loaded;
  CU(api.cuInit(0));
  CUdevice device;
  CU(api.cuDeviceGet(&device, 0));
  char text[256] = {};
  CU(api.cuDeviceGetName(text, sizeof text, device));
  name = text;
  CU(api.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  CU(api.cuDeviceGetAttribute(&clock_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device));
  CUcontext context;
  CU(api.cuDevicePrimaryCtxRetain(&context, device));
  CU(api.cuCtxSetCurrent(context));
  int least = 0, greatest = 0;
  CU(api.cuCtxGetStreamPriorityRange(&least, &greatest));
  CU(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(api.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  CU(api.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  for (CUevent& e : ended) CU(api.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  CU(api.cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  CU(api.cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
  void* page = nullptr;
  CU(api.cuMemHostAlloc(&page, 4096 + kControls * sizeof(sluice_launch_record),
                        CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(page, 0, 4096 + kControls * sizeof(sluice_launch_record));
  CUdeviceptr at;
  CU(api.cuMemHostGetDevicePointer(&at, page, 0));
  host_word_ = static_cast<volatile sluice_evict_word*>(page);
  host_word_device_ = at;
  staging_ = reinterpret_cast<std::uint64_t*>(static_cast<char*>(page) + 2048);
  records_ = reinterpret_cast<volatile sluice_launch_record*>(static_cast<char*>(page) + 4096);
  records_device_ = at + 4096;
  CU(api.cuMemAlloc(&device_word_, 256));
  CU(api.cuMemsetD8(device_word_, 0, 256));
  CU(api.cuMemAlloc(&controls_, kControls * sizeof(sluice_launch_control)));
  zero_control(0, kControls);
  const std::size_t bytes = SLUICE_LEFT_BYTES(2 * 32 * static_cast<std::size_t>(sms));
  CU(api.cuMemAlloc(&left, bytes));
  CU(api.cuMemsetD8(left, 0, bytes));
  CU(api.cuCtxSynchronize());
}

Module Gpu::load(const std::string& ptx) {
  auto rewritten = passes::rewrite_module(ptx);
  if (!rewritten) die(rewritten.error().message);
  Module m;
  static char log[8192];
  CUdevice device;
  CU(api.cuDeviceGet(&device, 0));
  worker::FittedModule fitted;
  if (worker::load_fitted(api, device, rewritten->text, log, &fitted) != CUDA_SUCCESS)
    die(std::string("module: ") + log);
  if (fitted.other) CU(api.cuModuleUnload(fitted.other));
  m.cu = fitted.cu;
  for (const passes::KernelReport& r : rewritten->kernels) {
    Kernel k;
    k.report = r;
    CU(api.cuModuleGetFunction(&k.original, m.cu, r.name.c_str()));
    CU(api.cuFuncGetAttribute(&k.registers, CU_FUNC_ATTRIBUTE_NUM_REGS, k.original));
    if (r.evictable) {
      CU(api.cuModuleGetFunction(&k.clone, m.cu, (r.name + SLUICE_CLONE_SUFFIX).c_str()));
      CU(api.cuFuncGetAttribute(&k.clone_registers, CU_FUNC_ATTRIBUTE_NUM_REGS, k.clone));
      if (r.one_task_too) {
        CU(api.cuModuleGetFunction(&k.one_task, m.cu, (r.name + SLUICE_ONE_TASK_SUFFIX).c_str()));
        CU(api.cuFuncGetAttribute(&k.one_task_registers, CU_FUNC_ATTRIBUTE_NUM_REGS, k.one_task));
        k.one_task_clamped =
            worker::clamped_form(api, m.cu, fitted.clamped, r.name + SLUICE_ONE_TASK_SUFFIX);
      }
      if (r.windows_too)
        CU(api.cuModuleGetFunction(&k.window, m.cu, (r.name + SLUICE_WINDOW_SUFFIX).c_str()));
      k.clamped = worker::clamped_form(api, m.cu, fitted.clamped, r.name + SLUICE_CLONE_SUFFIX);
      if (k.clamped)
        CU(api.cuFuncGetAttribute(&k.clamped_registers, CU_FUNC_ATTRIBUTE_NUM_REGS, k.clamped));
    }
    m.kernels.emplace(r.name, k);
  }
  return m;
}

int Gpu::resident(CUfunction f, const suite::Launch& l, std::uint32_t shared) const {
  if (shared > 48 * 1024)
    CU(api.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              static_cast<int>(shared)));
  int blocks = 0;
  CU(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, f, static_cast<int>(l.block[0] * l.block[1] * l.block[2]), shared));
  return blocks * sms;
}

CUdeviceptr Gpu::signal_address(Signal signal) const {
  return signal == Signal::kProxy || signal == Signal::kHost ? host_word_device_ : device_word_;
}

void Gpu::evict(Signal signal, std::uint32_t generation, std::uint32_t lo, std::uint32_t hi) {
  const std::uint64_t word = SLUICE_EVICT_WORD(generation, lo, hi);
  switch (signal) {
    case Signal::kProxy:
    case Signal::kHost:
      __atomic_store_n(host_word_, word, __ATOMIC_SEQ_CST);
      break;
    case Signal::kWrite:
      CU(api.cuStreamWriteValue64(urgent, device_word_, word, 0));
      break;
    case Signal::kCopy:
      *staging_ = word;
      CU(api.cuMemcpyHtoDAsync(device_word_, staging_, sizeof word, urgent));
      break;
  }
}

sluice_launch_control Gpu::read_control(int i) {
  sluice_launch_control c;
  CU(api.cuMemcpyDtoH(&c, control_address(i), sizeof c));
  return c;
}

void Gpu::zero_control(int i, int count) {
  CU(api.cuMemsetD8Async(control_address(i), 0, count * sizeof(sluice_launch_control), stream));
  for (int k = i; k < i + count; ++k)
    std::memset(const_cast<sluice_launch_record*>(records_ + k), 0, sizeof *records_);
}

CloneLaunch::CloneLaunch(Gpu& gpu, const Kernel& kernel, const suite::Launch& launch,
                         std::vector<std::byte> params, int control, const Settings& settings)
    : gpu_(gpu),
      kernel_(kernel),
      launch_(launch),
      params_(std::move(params)),
      control_(control),
      settings_(settings) {
  settings_.loop.clock_khz = static_cast<std::uint32_t>(gpu.clock_khz);
  tasks_ = worker::task_count(launch.grid[0], launch.grid[1], launch.grid[2]);
  shared_ =
      launch.dynamic_shared +
      (kernel.report.slot == passes::SlotPlace::kDynamicEnd ? SLUICE_PREEMPT_DYNAMIC_BYTES : 0);
  if (kernel.clone == nullptr || tasks_ == 0) return;
  const bool second = kernel.one_task != nullptr && !settings_.spatial && settings_.one_task;
  one_task_ = second || kernel.report.once;
  if (one_task_) shared_ = launch.dynamic_shared;
  if (settings_.windows.tasks != 0 && kernel.window != nullptr) {
    function_ = kernel.window;
    shared_ = launch.dynamic_shared;
    geometry_.evictable = true;
    gpu.resident(function_, launch, shared_);
    return;
  }
  const worker::CloneForms forms =
      second ? worker::CloneForms{kernel.original, kernel.one_task,
                                  settings_.clamp ? kernel.one_task_clamped : nullptr}
             : worker::CloneForms{kernel.original, kernel.clone,
                                  settings_.clamp ? kernel.clamped : nullptr};
  const worker::ChosenForm form =
      worker::choose_form(gpu.api, forms, launch.block[0] * launch.block[1] * launch.block[2],
                          launch.dynamic_shared, shared_);
  function_ = form.function;
  if (function_ == nullptr) return;
  geometry_ = worker::plan_launch(tasks_, form.blocks_per_sm * static_cast<std::uint32_t>(gpu.sms),
                                  settings_.first_chunk, proxy(), settings_.loop,
                                  {kernel.report.in_order, one_task_});
}

void CloneLaunch::queue(int pred_control, bool second) {
  generation_ = gpu_.next_generation();
  sluice_preempt_params p =
      worker::make_params(launch_.grid.data(), tasks_, geometry_, settings_.loop);
  p.control = gpu_.control_address(control_);
  p.signal = gpu_.signal_address(settings_.signal);
  p.record = settings_.record ? gpu_.record_address(control_) : 0;
  p.pred = pred_control < 0 ? 0 : gpu_.control_address(pred_control);
  p.left = gpu_.left;
  p.generation = generation_;
  if (proxy()) p.flags |= SLUICE_LAUNCH_PROXY;
  if (physical_ != 0) p.flags |= SLUICE_LAUNCH_RESUME;
  p.sm_lo = settings_.sm_lo;
  p.sm_hi = settings_.sm_hi;
  p.sm_quota = settings_.sm_quota;
  if (settings_.spatial) p.flags |= SLUICE_LAUNCH_SPATIAL;
  if (second) {
    p.grid = 1;
    p.worker_base = geometry_.blocks;
  }
  p.left_slots = geometry_.blocks * 2;
  std::uint32_t blocks = geometry_.blocks;
  if (one_task_) {
    p.worker_base = admitted_;
    blocks = worker::once_blocks(tasks_ - admitted_, proxy());
  }
  ++physical_;
  if (windows()) return queue_windows(p);
  const std::size_t at = kernel_.report.param_offset_of_block;
  std::vector<std::byte> buffer(at + sizeof p);
  std::memcpy(buffer.data(), params_.data(), std::min(params_.size(), at));
  std::memcpy(buffer.data() + at, &p, sizeof p);
  std::size_t bytes = buffer.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  CU(gpu_.api.cuLaunchKernel(function_, blocks, 1, 1, launch_.block[0], launch_.block[1],
                             launch_.block[2], shared_, second ? gpu_.second : gpu_.stream, nullptr,
                             extra));
}

// As the worker does it (mediator/worker/launch/windows.h), but waiting here for what it polls
// for.
void CloneLaunch::queue_windows(const sluice_preempt_params& launch) {
  const std::size_t at = kernel_.report.param_offset_of_block;
  std::vector<std::byte> buffer(at + sizeof(sluice_window_params));
  std::memcpy(buffer.data(), params_.data(), std::min(params_.size(), at));
  std::size_t bytes = buffer.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  CU(gpu_.api.cuEventRecord(gpu_.fork, gpu_.stream));
  CU(gpu_.api.cuStreamWaitEvent(gpu_.second, gpu_.fork, 0));
  GridWindows windows(launch_.grid.data(), settings_.windows.tasks, admitted_);
  WindowPace pace(settings_.windows);
  for (int queued = 0; windows.left(); ++queued) {
    while (queued >= 2 && !pace.due(now_ns())) {
      if (stop_at_ns_ != 0 && now_ns() >= stop_at_ns_) break;
      if (pace.ended()) continue;
      const CUresult r = gpu_.api.cuEventQuery(gpu_.ended[1 - windows.stream()]);
      if (r != CUDA_ERROR_NOT_READY) CU(r);
      if (r == CUDA_SUCCESS) pace.ended(now_ns());
    }
    if (stop_at_ns_ != 0 && now_ns() >= stop_at_ns_) break;
    std::uint32_t grid[3];
    sluice_window_params p = windows.next(grid);
    p.pred = launch.pred;
    std::memcpy(buffer.data() + at, &p, sizeof p);
    CU(gpu_.api.cuLaunchKernel(function_, grid[0], grid[1], grid[2], launch_.block[0],
                               launch_.block[1], launch_.block[2], shared_,
                               windows.stream() != 0 ? gpu_.second : gpu_.stream, nullptr, extra));
    CU(gpu_.api.cuEventRecord(gpu_.ended[windows.stream()],
                              windows.stream() != 0 ? gpu_.second : gpu_.stream));
    pace.queued();
  }
  windows_end_ = windows.end();
  CU(gpu_.api.cuEventRecord(gpu_.join, gpu_.second));
  CU(gpu_.api.cuStreamWaitEvent(gpu_.stream, gpu_.join, 0));
}

bool CloneLaunch::done() {
  const sluice_launch_control c = gpu_.read_control(control_);
  if (windows()) {
    admitted_ = windows_end_;
    return windows_end_ == tasks_;
  }
  if (one_task_) {
    const std::uint32_t before = admitted_;
    admitted_ = sluice_admitted(&c, generation_, before);
    if (admitted_ < before || admitted_ > tasks_ || (c.done == 1) != (admitted_ == tasks_))
      die("an admission word that cannot be: " + launch_.kernel);
  }
  return c.done == 1;
}

void launch_original(Gpu& gpu, CUfunction f, const suite::Launch& l, std::vector<std::byte>& params,
                     CUstream stream) {
  std::size_t bytes = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  CU(gpu.api.cuLaunchKernel(f, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                            l.dynamic_shared, stream, nullptr, bytes == 0 ? nullptr : extra));
}

Memory::Memory(Gpu& gpu, const suite::Case& work) : gpu_(gpu), work_(work) {
  for (const suite::Buffer& b : work.buffers) {
    CUdeviceptr p = 0;
    CU(gpu.api.cuMemAlloc(&p, std::max<std::size_t>(b.initial.size(), 16)));
    at_.push_back(p);
    addresses_.push_back(p);
  }
  reset();
}

Memory::~Memory() {
  for (CUdeviceptr p : at_) CU(gpu_.api.cuMemFree(p));
  for (CUdeviceptr p : saved_) CU(gpu_.api.cuMemFree(p));
}

void Memory::reset() {
  for (std::size_t i = 0; i < at_.size(); ++i)
    if (!work_.buffers[i].initial.empty())
      CU(gpu_.api.cuMemcpyHtoD(at_[i], work_.buffers[i].initial.data(),
                               work_.buffers[i].initial.size()));
}

void Memory::save() {
  if (saved_.empty())
    for (const suite::Buffer& b : work_.buffers) {
      CUdeviceptr p = 0;
      CU(gpu_.api.cuMemAlloc(&p, std::max<std::size_t>(b.initial.size(), 16)));
      saved_.push_back(p);
    }
  for (std::size_t i = 0; i < at_.size(); ++i)
    if (!work_.buffers[i].initial.empty())
      CU(gpu_.api.cuMemcpyDtoDAsync(saved_[i], at_[i], work_.buffers[i].initial.size(),
                                    gpu_.stream));
}

void Memory::restore() {
  for (std::size_t i = 0; i < at_.size(); ++i)
    if (!work_.buffers[i].initial.empty())
      CU(gpu_.api.cuMemcpyDtoDAsync(at_[i], saved_[i], work_.buffers[i].initial.size(),
                                    gpu_.stream));
}

suite::Contents Memory::read() {
  suite::Contents c;
  CU(gpu_.api.cuCtxSynchronize());
  for (std::size_t i = 0; i < at_.size(); ++i) {
    c.emplace_back(work_.buffers[i].initial.size());
    if (!c.back().empty()) CU(gpu_.api.cuMemcpyDtoH(c.back().data(), at_[i], c.back().size()));
  }
  return c;
}

std::vector<testing::DevicePiece> Memory::pieces() const {
  std::vector<testing::DevicePiece> all;
  for (std::size_t i = 0; i < at_.size(); ++i)
    all.push_back({at_[i], work_.buffers[i].initial.size()});
  return all;
}

std::vector<std::byte> Memory::params(const suite::Launch& l) const {
  std::vector<std::byte> p = l.params;
  for (const suite::PointerAt& at : l.pointers) {
    const std::uint64_t value = addresses_[at.buffer] + at.addend;
    std::memcpy(p.data() + at.offset, &value, sizeof value);
  }
  return p;
}

void Memory::step(const Module& module, const suite::Step& step) {
  CU(gpu_.api.cuStreamSynchronize(gpu_.stream));
  if (const auto* u = std::get_if<suite::Upload>(&step)) {
    CU(gpu_.api.cuMemcpyHtoD(at_[u->buffer] + u->offset, u->bytes.data(), u->bytes.size()));
  } else if (const auto* c = std::get_if<suite::Copy>(&step)) {
    CU(gpu_.api.cuMemcpyDtoD(at_[c->to] + c->to_offset, at_[c->from] + c->from_offset, c->bytes));
  } else if (const auto* f = std::get_if<suite::Fill>(&step)) {
    CU(gpu_.api.cuMemsetD8(at_[f->buffer] + f->offset, f->value, f->bytes));
  } else if (const auto* s = std::get_if<suite::SetSymbol>(&step)) {
    CUdeviceptr at = 0;
    std::size_t bytes = 0;
    CU(gpu_.api.cuModuleGetGlobal(&at, &bytes, module.cu, s->name.c_str()));
    CU(gpu_.api.cuMemcpyHtoD(at + s->offset, s->bytes.data(), s->bytes.size()));
  }
  // Expect: what the recorded program saw at its own scale; here original and clone are compared.
  CU(gpu_.api.cuCtxSynchronize());
}

}  // namespace sluice::bench
