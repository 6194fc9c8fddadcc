// SPDX-License-Identifier: Apache-2.0
// One module on a real GPU: a kernel's original and its clones from the same memory, the clones
// evicted at random; what clone_gpu.cc runs its kernels with. The job of one process, one thread:
// the state is global.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "abi/preempt.h"
#include "kernels/passes/rewrite.h"
#include "mediator/base/grid_windows.h"
#include "mediator/base/magic_divisor.h"
#include "mediator/gpu/driver_api.h"
#include "tests/support/device_images.h"

namespace sluice::golden {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

inline gpu::DriverApi cuda;
inline std::mt19937_64 rng;
inline unsigned rounds = 6;
inline int sms = 0;
inline bool any_wrong = false;

struct Count {
  int launches = 0, runs = 0, evictions = 0, different = 0;
};
inline std::map<std::string, Count> counts;  // by section and tier

inline void must(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), gpu::describe(result).c_str());
  std::fflush(stdout);
  _exit(3);
}

using Memory = testing::DevicePiece;

// One module with the memory that its kernels can write.
class Player {
 public:
  explicit Player(const std::string& ptx) {
    auto module = ptx::Module::parse(ptx);
    if (!module) {
      std::fprintf(stderr, "%s\n", module.error().message.c_str());
      _exit(3);
    }
    rewritten_ = passes::rewrite_module(*module);
    for (const ptx::Function& f : module->functions())
      for (const ptx::Variable& p : f.params)
        if (f.is_entry && f.has_body) offsets_[std::string(f.name)].push_back(p.offset);
    if (cuda.cuModuleLoadData(&module_, rewritten_.text.c_str()) != CUDA_SUCCESS) {
      // The assembler may refuse the original itself.
      if (cuda.cuModuleLoadData(&module_, ptx.c_str()) != CUDA_SUCCESS) _exit(4);
      std::printf("CLONES ARE REFUSED\n");
      std::fflush(stdout);
      _exit(3);
    }
    for (const ptx::Variable& v : module->variables()) {
      if (v.space != ptx::Space::kGlobal) continue;
      Memory m;
      size_t bytes = 0;
      if (cuda.cuModuleGetGlobal(&m.address, &bytes, module_, std::string(v.name).c_str()) ==
          CUDA_SUCCESS) {
        m.bytes = bytes;
        symbols_.push_back(m);
      }
    }
    must(cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(cuda.cuStreamCreate(&second_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(cuda.cuStreamCreateWithPriority(&urgent_, CU_STREAM_NON_BLOCKING, -5), "cuStreamCreate");
    void* host = nullptr;
    must(cuda.cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
    host_signal_ = static_cast<volatile std::uint64_t*>(host);
    must(cuda.cuMemHostGetDevicePointer(&host_signal_gpu_, host, 0), "cuMemHostGetDevicePointer");
    must(cuda.cuMemAlloc(&control_, kControlBytes), "cuMemAlloc");
    images_ = std::make_unique<testing::DeviceImages>(
        cuda, stream_, [](CUresult r, const char* what) { must(r, what); });
  }
  ~Player() {
    for (auto* image : {&before_, &expected_, &got_}) images_->free(*image);
    images_.reset();
    for (Memory& m : buffers_) cuda.cuMemFree(m.address);
    cuda.cuMemFree(control_);
    cuda.cuMemFreeHost(const_cast<std::uint64_t*>(host_signal_));
    cuda.cuStreamDestroy(stream_);
    cuda.cuStreamDestroy(second_);
    cuda.cuStreamDestroy(urgent_);
    cuda.cuModuleUnload(module_);
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  CUmodule module() const { return module_; }
  std::size_t add(const void* data, std::size_t bytes) {
    Memory m;
    m.bytes = std::max<std::size_t>(bytes, 16);
    must(cuda.cuMemAlloc(&m.address, m.bytes), "cuMemAlloc");
    must(cuda.cuMemsetD8(m.address, 0, m.bytes), "cuMemsetD8");
    must(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
    if (data && bytes != 0) must(cuda.cuMemcpyHtoD(m.address, data, bytes), "cuMemcpyHtoD");
    buffers_.push_back(m);
    return buffers_.size() - 1;
  }
  CUdeviceptr address(std::size_t k) const { return buffers_[k].address; }

  std::vector<Bytes> contents() const {
    std::vector<Bytes> all;
    for (const auto* list : {&buffers_, &symbols_})
      for (const Memory& m : *list) {
        all.emplace_back(m.bytes);
        must(cuda.cuMemcpyDtoH(all.back().data(), m.address, m.bytes), "cuMemcpyDtoH");
      }
    return all;
  }
  // Both forms of one launch from the same memory; leaves the clone's.
  void compare(const char* section, const std::string& kernel, const std::uint32_t grid[3],
               const std::uint32_t block[3], std::uint32_t dynamic, Bytes params,
               bool deterministic) {
    const passes::KernelReport* report = nullptr;
    for (const passes::KernelReport& r : rewritten_.kernels)
      if (r.name == kernel) report = &r;
    if (!report) return;
    Count& count = counts[std::string(section) + " " + passes::tier_name(report->tier)];
    ++count.launches;
    // On the GPU: through the host bfs, with its 40 launches over 200 MB, took more than a job's
    // minute.
    std::vector<Memory> memory = buffers_;
    memory.insert(memory.end(), symbols_.begin(), symbols_.end());
    if (report->evictable) images_->take(memory, before_);
    const double us = original(kernel, grid, block, dynamic, params);
    if (!report->evictable) return;
    images_->take(memory, expected_);
    for (unsigned round = 0; round < rounds; ++round) {
      images_->put(memory, before_);
      const unsigned most = round == 0 ? 0 : 1 + static_cast<unsigned>(rng() % 8);
      count.evictions += clone(*report, grid, block, dynamic, params, us, most);
      ++count.runs;
      if (!deterministic || images_->same(memory, expected_)) continue;
      images_->take(memory, got_);
      bool order = false;
      for (int again = 0; again < 6 && !order; ++again) {
        images_->put(memory, before_);
        original(kernel, grid, block, dynamic, params);
        order = !images_->same(memory, expected_);
      }
      images_->put(memory, got_);
      if (order) continue;
      ++count.different;
      any_wrong = true;
      std::printf("DIFFERENT %s %s (%s), round %u\n", section, kernel.c_str(),
                  passes::tier_name(report->tier), round);
      tell_difference(memory);
      std::fflush(stdout);
    }
  }

  // Where what the clone left (which is in memory, and stays) is not what the original left.
  void tell_difference(const std::vector<Memory>& memory) {
    std::vector<Bytes> got, expected;
    const auto read = [&](std::vector<Bytes>& all) {
      for (const Memory& m : memory) {
        all.emplace_back(m.bytes);
        must(cuda.cuMemcpyDtoH(all.back().data(), m.address, m.bytes), "cuMemcpyDtoH");
      }
    };
    read(got);
    images_->put(memory, expected_);
    read(expected);
    images_->put(memory, got_);
    for (std::size_t k = 0; k < memory.size(); ++k) {
      std::size_t differ = 0;
      for (std::size_t i = 0; i < got[k].size(); ++i) {
        if (got[k][i] == expected[k][i]) continue;
        if (++differ <= 16)
          std::printf("  memory %zu of %zu bytes, byte %zu: %02x, not %02x\n", k, got[k].size(), i,
                      static_cast<unsigned>(got[k][i]), static_cast<unsigned>(expected[k][i]));
      }
      if (differ != 0) std::printf("  memory %zu: %zu bytes differ\n", k, differ);
    }
  }

 private:
  // More than the workers of any launch: 32 small blocks on each of an H200's 132 SMs are 4,224.
  static constexpr std::size_t kSlots = 16384;
  static constexpr std::size_t kLeft = 2048;  // behind control, record and signal
  static constexpr std::size_t kControlBytes = kLeft + SLUICE_LEFT_BYTES(kSlots);
  static constexpr std::size_t kRecord = 1024, kSignal = 1536;

  void wait(const std::string& what) {
    const auto begin = Clock::now();
    for (;;) {
      CUresult r = cuda.cuStreamQuery(stream_);
      if (r == CUDA_SUCCESS) r = cuda.cuStreamQuery(second_);
      if (r == CUDA_SUCCESS) return;
      if (r != CUDA_ERROR_NOT_READY) must(r, what);
      if (Clock::now() - begin > std::chrono::seconds(8)) {
        std::printf("DOES NOT END %s\n", what.c_str());
        std::fflush(stdout);
        _exit(2);
      }
    }
  }

  // Parameters one by one: the driver puts the first of a kernel with parameters of more than 16
  // bytes' alignment not at the beginning of its buffer.
  void launch(CUfunction f, const std::string& what, std::uint32_t gx, std::uint32_t gy,
              std::uint32_t gz, const std::uint32_t block[3], std::uint32_t dynamic,
              const std::vector<std::size_t>& offsets, Bytes& params, CUstream in = nullptr) {
    if (dynamic > 48 * 1024 || dynamic + 48 * 1024 > 48 * 1024)
      cuda.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              static_cast<int>(dynamic));
    std::vector<void*> pointers;
    for (std::size_t offset : offsets) pointers.push_back(params.data() + offset);
    must(cuda.cuLaunchKernel(f, gx, gy, gz, block[0], block[1], block[2], dynamic,
                             in ? in : stream_, pointers.data(), nullptr),
         what);
  }

  CUfunction function(const std::string& name) {
    CUfunction f = nullptr;
    must(cuda.cuModuleGetFunction(&f, module_, name.c_str()), name);
    return f;
  }

  double original(const std::string& kernel, const std::uint32_t grid[3],
                  const std::uint32_t block[3], std::uint32_t dynamic, Bytes& params) {
    const auto begin = Clock::now();
    launch(function(kernel), kernel, grid[0], grid[1], grid[2], block, dynamic, offsets_[kernel],
           params);
    wait(kernel);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  // Returns how often it was evicted.
  int clone(const passes::KernelReport& report, const std::uint32_t grid[3],
            const std::uint32_t block[3], std::uint32_t dynamic, const Bytes& params, double us,
            unsigned most) {
    // Each form in a third of the runs where there are all.
    const auto pick = rng() % 3;
    if (report.windows_too && pick == 0)
      return in_windows(report, grid, block, dynamic, params, most);
    const bool second = report.one_task_too && pick == 1;
    const bool one_task = report.once || second;
    const std::string name = report.name + (second ? SLUICE_ONE_TASK_SUFFIX : SLUICE_CLONE_SUFFIX);
    std::vector<std::size_t> offsets = offsets_[report.name];
    offsets.push_back(report.param_offset_of_block);
    CUfunction f = function(name);
    if (report.slot == passes::SlotPlace::kDynamicEnd && !one_task)
      dynamic += SLUICE_PREEMPT_DYNAMIC_BYTES;
    // The memset is the default stream's, which this stream does not wait for.
    must(cuda.cuMemsetD8(control_, 0, kControlBytes), "cuMemsetD8");
    must(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
    *host_signal_ = 0;
    const std::uint32_t total = grid[0] * grid[1] * grid[2];
    // What blocks save that leave in mid-work; with anything in it.
    CUdeviceptr state = 0;
    const std::uint64_t stride =
        SLUICE_RESUME_STRIDE(block[0] * block[1] * block[2], report.state_bytes);
    if (report.resumable) {
      must(cuda.cuMemAlloc(&state, stride * total), "cuMemAlloc");
      must(cuda.cuMemsetD8(state, 0xa5, stride * total), "cuMemsetD8");
      must(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
    }
    const bool proxy = rng() % 2 == 0;
    const bool few = rng() % 2 == 0;
    static constexpr std::uint16_t kChunks[] = {1, 2, 4, 16, 64};
    const std::uint16_t chunk = kChunks[rng() % 5];
    sluice_launch_control c{};
    int evictions = 0;
    std::uint32_t admitted = 0;  // one task a block
    for (std::uint32_t physical = 0;; ++physical) {
      if (physical > most + 20) {
        std::printf("NEVER DONE %s\n", name.c_str());
        std::fflush(stdout);
        _exit(2);
      }
      sluice_preempt_params p{};
      p.control = control_;
      p.record = control_ + kRecord;
      p.left = control_ + kLeft;
      p.signal = proxy ? host_signal_gpu_ : control_ + kSignal;
      p.grid_x = grid[0];
      p.grid_y = grid[1];
      p.grid_z = grid[2];
      p.tasks = total;
      p.generation = physical + 1;
      p.chunk = chunk;
      p.chunk_max = static_cast<std::uint16_t>(chunk * 4);
      p.batch_shift = static_cast<std::uint8_t>(rng() % 3);
      p.tail_shift = static_cast<std::uint8_t>(rng() % 8);
      p.target_clocks = 20000;
      p.left_slots = kSlots;
      p.sm_hi = 0xffff;
      if (one_task) p.worker_base = admitted;
      p.state = state;
      p.state_stride = static_cast<std::uint32_t>(stride);
      const std::uint32_t copier = report.resumable ? SLUICE_LAUNCH_DUTY : SLUICE_LAUNCH_PROXY;
      p.flags =
          static_cast<std::uint16_t>((proxy ? copier : 0) | (physical ? SLUICE_LAUNCH_RESUME : 0) |
                                     (grid[1] == 1 && grid[2] == 1 ? SLUICE_LAUNCH_ONE_ROW : 0));
      const MagicDivisor x = magic_divisor(grid[0]), y = magic_divisor(grid[1]);
      p.magic_x = x.magic;
      p.shift_x1 = x.shift1;
      p.shift_x2 = x.shift2;
      p.magic_y = y.magic;
      p.shift_y1 = y.shift1;
      p.shift_y2 = y.shift2;
      Bytes all(report.param_offset_of_block + sizeof p);
      std::memcpy(all.data(), params.data(), params.size());
      std::memcpy(all.data() + report.param_offset_of_block, &p, sizeof p);
      int per_sm = 1;
      cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &per_sm, f, static_cast<int>(block[0] * block[1] * block[2]), dynamic);
      std::uint32_t workers = static_cast<std::uint32_t>(std::max(per_sm, 1) * sms);
      if (proxy) --workers;
      workers = std::min({workers, total, few ? 8u : 1u << 20});
      if (report.resumable) workers = total - std::min(total, c.finished);
      if (one_task) workers = total - admitted;
      const auto begin = Clock::now();
      launch(f, name, std::max(workers, 1u) + (proxy && !report.resumable ? 1 : 0), 1, 1, block,
             dynamic, offsets, all);
      if (physical < most) {
        const double reach = (few ? 6 : 1.5) * us / most;
        const double delay = reach * static_cast<double>(rng() % 1000) / 1000;
        while (std::chrono::duration<double, std::micro>(Clock::now() - begin).count() < delay) {
        }
        const std::uint64_t word =
            rng() % 4 ? SLUICE_EVICT_ALL_SMS(physical + 1)
                      : SLUICE_EVICT_WORD(physical + 1, rng() % 60, 60 + rng() % 80);
        if (proxy)
          *host_signal_ = word;
        else
          must(cuda.cuStreamWriteValue64(urgent_, control_ + kSignal, word, 0),
               "cuStreamWriteValue64");
      }
      wait(name);
      must(cuda.cuMemcpyDtoH(&c, control_, sizeof c), "cuMemcpyDtoH");
      if (one_task) {
        const std::uint32_t before = admitted;
        admitted = sluice_admitted(&c, physical + 1, before);
        if (admitted < before || admitted > total || (c.done == 1) != (admitted == total)) {
          std::printf("ADMITTED %u OF %u AFTER %u: %s\n", admitted, total, before, name.c_str());
          std::fflush(stdout);
          _exit(2);
        }
      }
      if (c.done) {
        if (state != 0) must(cuda.cuMemFree(state), "cuMemFree");
        return evictions;
      }
      ++evictions;
    }
  }

  // In windows of the grid, in two streams in turn; evicted behind any of them.
  int in_windows(const passes::KernelReport& report, const std::uint32_t grid[3],
                 const std::uint32_t block[3], std::uint32_t dynamic, const Bytes& params,
                 unsigned most) {
    const std::string name = report.name + SLUICE_WINDOW_SUFFIX;
    std::vector<std::size_t> offsets = offsets_[report.name];
    offsets.push_back(report.param_offset_of_block);
    CUfunction f = function(name);
    must(cuda.cuMemsetD8(control_, 0, kControlBytes), "cuMemsetD8");
    must(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
    const std::uint32_t total = grid[0] * grid[1] * grid[2];
    const std::uint32_t tasks = 1 + static_cast<std::uint32_t>(rng() % std::max(total / 3, 1u));
    GridWindows windows(grid, tasks);
    // As if the launch before it in the stream were done.
    const sluice_launch_control before{.done = 1};
    must(cuda.cuMemcpyHtoD(control_, &before, sizeof before), "cuMemcpyHtoD");
    for (int evictions = 0;; ++evictions) {
      unsigned follow = static_cast<unsigned>(evictions) < most ? 1 + rng() % 3 : ~0u;
      for (windows = GridWindows(grid, tasks, windows.end()); windows.left() && follow-- != 0;) {
        std::uint32_t its[3];
        sluice_window_params p = windows.next(its);
        p.pred = rng() % 2 == 0 ? control_ : 0;
        Bytes all(report.param_offset_of_block + sizeof p);
        std::memcpy(all.data(), params.data(), params.size());
        std::memcpy(all.data() + report.param_offset_of_block, &p, sizeof p);
        launch(f, name, its[0], its[1], its[2], block, dynamic, offsets, all,
               windows.stream() != 0 ? second_ : stream_);
      }
      wait(name);
      if (!windows.left()) return evictions;
    }
  }

  passes::Rewritten rewritten_;
  std::map<std::string, std::vector<std::size_t>> offsets_;  // of the originals' parameters
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr, second_ = nullptr, urgent_ = nullptr;
  volatile std::uint64_t* host_signal_ = nullptr;
  CUdeviceptr host_signal_gpu_ = 0, control_ = 0;
  std::vector<Memory> buffers_, symbols_;
  std::unique_ptr<testing::DeviceImages> images_;
  testing::DeviceImages::Image before_, expected_, got_;
};

}  // namespace sluice::golden
