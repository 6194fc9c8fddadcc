// Originals against clones on a real GPU, the clones evicted at random: the hazards, kernels written
// with preempt.cuh, random kernels, the suite and the recorded CCCL programs. Run by hand on a machine with a GPU:
//
//   clone_gpu LIBCUDA CCCL-FOLDER SHARD SHARDS [ROUNDS [NAME]]
//
// SLUICE_RANDOM_SEED and SLUICE_RANDOM_KERNELS choose the random kernels (160 from 1 on),
// SLUICE_CLONE_JOBS which jobs there are ("hazard author tensor random suite cccl"), NAME only those
// whose names begin so ("hazard bulk").
// Prints one line per tier and one per difference; exit status of a job 1: a clone
// differed, 2: one did not end, 3: the driver failed, 4: it refuses the original. A process for
// each job of the shard, one after the other. Left-over lists, proxy, signals by host store and by
// stream write are as mediator/worker uses them (abi/preempt.h), the rest of the worker is not in
// it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "abi/preempt.h"
#include "kernels/passes/rewrite.h"
#include "kernels/suite/catalog.h"
#include "mediator/base/magic_divisor.h"
#include "mediator/gpu/driver_api.h"
#include "tests/authors/cases.h"
#include "tests/golden/tensor/tensor_cases.h"
#include "tests/support/cccl_cases.h"
#include "tests/support/random_kernel.h"
#include "tests/unit/ptx_hazards.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

gpu::DriverApi cuda;
std::mt19937_64 rng;
unsigned rounds = 6;
int sms = 0;
bool any_wrong = false;

struct Count {
  int launches = 0, runs = 0, evictions = 0, different = 0;
};
std::map<std::string, Count> counts;  // by section and tier

void must(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), gpu::describe(result).c_str());
  std::fflush(stdout);
  _exit(3);
}

struct Memory {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

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
    must(cuda.cuStreamCreateWithPriority(&urgent_, CU_STREAM_NON_BLOCKING, -5), "cuStreamCreate");
    void* host = nullptr;
    must(cuda.cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
    host_signal_ = static_cast<volatile std::uint64_t*>(host);
    must(cuda.cuMemHostGetDevicePointer(&host_signal_gpu_, host, 0), "cuMemHostGetDevicePointer");
    must(cuda.cuMemAlloc(&control_, kControlBytes), "cuMemAlloc");
  }
  ~Player() {
    for (Memory& m : buffers_) cuda.cuMemFree(m.address);
    cuda.cuMemFree(control_);
    cuda.cuMemFreeHost(const_cast<std::uint64_t*>(host_signal_));
    cuda.cuStreamDestroy(stream_);
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
  void restore(const std::vector<Bytes>& contents) {
    std::size_t k = 0;
    for (const auto* list : {&buffers_, &symbols_})
      for (const Memory& m : *list) {
        must(cuda.cuMemcpyHtoD(m.address, contents[k].data(), m.bytes), "cuMemcpyHtoD");
        ++k;
      }
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
    const auto before = report->evictable ? contents() : std::vector<Bytes>();
    const double us = original(kernel, grid, block, dynamic, params);
    if (!report->evictable) return;
    const auto expected = contents();
    for (unsigned round = 0; round < rounds; ++round) {
      restore(before);
      const unsigned most = round == 0 ? 0 : 1 + static_cast<unsigned>(rng() % 8);
      count.evictions += clone(*report, grid, block, dynamic, params, us, most);
      ++count.runs;
      const auto got = contents();
      if (got == expected || !deterministic) continue;
      bool order = false;
      for (int again = 0; again < 6 && !order; ++again) {
        restore(before);
        original(kernel, grid, block, dynamic, params);
        order = contents() != expected;
      }
      restore(got);
      if (order) continue;
      ++count.different;
      any_wrong = true;
      std::printf("DIFFERENT %s %s (%s), round %u\n", section, kernel.c_str(),
                  passes::tier_name(report->tier), round);
      std::fflush(stdout);
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
      const CUresult r = cuda.cuStreamQuery(stream_);
      if (r == CUDA_SUCCESS) return;
      if (r != CUDA_ERROR_NOT_READY) must(r, what);
      if (Clock::now() - begin > std::chrono::seconds(8)) {
        std::printf("DOES NOT END %s\n", what.c_str());
        std::fflush(stdout);
        _exit(2);
      }
    }
  }

  // Parameters one by one: the driver puts the first of a kernel with parameters of more than 16 bytes'
  // alignment not at the beginning of its buffer.
  void launch(CUfunction f, const std::string& what, std::uint32_t gx, std::uint32_t gy,
              std::uint32_t gz, const std::uint32_t block[3], std::uint32_t dynamic,
              const std::vector<std::size_t>& offsets, Bytes& params) {
    if (dynamic > 48 * 1024 || dynamic + 48 * 1024 > 48 * 1024)
      cuda.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              static_cast<int>(dynamic));
    std::vector<void*> pointers;
    for (std::size_t offset : offsets) pointers.push_back(params.data() + offset);
    must(cuda.cuLaunchKernel(f, gx, gy, gz, block[0], block[1], block[2], dynamic, stream_,
                             pointers.data(), nullptr),
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
    // Half of the runs where there are two.
    const bool second = report.one_task_too && rng() % 2 == 0;
    const bool one_task = report.once || second;
    const std::string name = report.name + (second ? SLUICE_ONE_TASK_SUFFIX : SLUICE_CLONE_SUFFIX);
    std::vector<std::size_t> offsets = offsets_[report.name];
    offsets.push_back(report.param_offset_of_block);
    CUfunction f = function(name);
    if (report.slot == passes::SlotPlace::kDynamicEnd && !one_task) dynamic += SLUICE_PREEMPT_DYNAMIC_BYTES;
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
      p.flags = static_cast<std::uint16_t>((proxy ? copier : 0) |
                                           (physical ? SLUICE_LAUNCH_RESUME : 0) |
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

  passes::Rewritten rewritten_;
  std::map<std::string, std::vector<std::size_t>> offsets_;  // of the originals' parameters
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr, urgent_ = nullptr;
  volatile std::uint64_t* host_signal_ = nullptr;
  CUdeviceptr host_signal_gpu_ = 0, control_ = 0;
  std::vector<Memory> buffers_, symbols_;
};

void play_hazard(const tool::hazards::Hazard& h) {
  const std::string text = tool::hazards::text_of(h);
  if (std::string(h.tier) == "opaque") return;
  Player player(text);
  std::vector<std::uint32_t> numbers(1024);
  std::mt19937 values(7);
  for (auto& n : numbers) n = values();
  const std::size_t out = player.add(nullptr, 16 << 20), in = player.add(numbers.data(), 4096);
  Bytes params(20);
  const std::uint64_t pointers[2] = {player.address(out), player.address(in)};
  const std::string name = h.name;
  const bool scale = name != "last_block" && !name.starts_with("work_queue");
  const std::uint32_t n = scale ? h.n * 100 : h.n;
  std::memcpy(params.data(), pointers, 16);
  std::memcpy(params.data() + 16, &n, 4);
  const std::uint32_t grid[3] = {h.grid[0] * (scale ? 100 : 1), h.grid[1], h.grid[2]};
  for (int i = 0; i < 4; ++i)
    player.compare("hazards", "k", grid, h.block, h.dynamic_shared, params, true);
}

void play_author(const authors::Case& c, const std::string& text) {
  Player player(text);
  std::mt19937 numbers(11);
  Bytes params;
  for (const authors::Argument& a : c.arguments) {
    const bool number = a.kind == authors::Argument::kNumber;
    std::uint64_t value = a.value;
    if (!number) {
      std::vector<std::uint32_t> words(a.value / 4);
      if (a.kind == authors::Argument::kNumbers)
        for (auto& w : words) w = numbers();
      value = player.address(player.add(words.data(), a.value));
    }
    const std::size_t at = params.size();
    params.resize(at + (number ? 4 : 8));
    std::memcpy(params.data() + at, &value, params.size() - at);
  }
  for (int i = 0; i < 4; ++i)
    player.compare("authors", c.kernel, c.grid, c.block, c.dynamic_shared, params, true);
}

// Rows of tiles: many more blocks than fit, some microseconds each.
void play_tensor(const std::string& kernel) {
  constexpr std::uint32_t kRows = 400, kTiles = 24, kMaps = 6000;
  constexpr std::uint32_t kWide = kTiles * tensor::kWidth, kHigh = kRows * tensor::kHeight;
  Player player(tensor::text());
  std::vector<float> numbers(std::size_t{kWide} * kHigh);
  std::mt19937 values(5);
  for (float& x : numbers) x = static_cast<float>(values() % 1000) / 8;
  const std::uint64_t in = player.address(player.add(numbers.data(), numbers.size() * 4));
  const std::uint64_t out = player.address(player.add(nullptr, numbers.size() * 4));
  const bool narrow = kernel == "changed_maps";
  const auto from = tensor::make_map(cuda.library, in, narrow ? tensor::kWidth : kWide,
                                     narrow ? tensor::kHeight : kHigh);
  const auto to = tensor::make_map(cuda.library, out, kWide, kHigh);
  if (!from || !to) _exit(4);
  Bytes params = *from;
  const auto put = [&](const auto& value) {
    const std::size_t at = (params.size() + sizeof value - 1) / sizeof value * sizeof value;
    params.resize(at + sizeof value);
    std::memcpy(params.data() + at, &value, sizeof value);
  };
  std::uint32_t grid[3] = {kRows, 1, 1}, block[3] = {384, 1, 1};
  if (kernel == "scale_tiles") {
    params.insert(params.end(), to->begin(), to->end());
    put(1.5f);
    grid[0] = kTiles;
    grid[1] = kRows;
    block[0] = 128;
  } else if (kernel == "sum_rows") {
    put(out);
    put(kTiles);
  } else {
    put(player.address(player.add(nullptr, std::size_t{kMaps} * 128)));
    put(in);
    put(out);
    put(kRows * kTiles);
    grid[0] = kMaps;
    block[0] = 64;
  }
  for (int i = 0; i < 4; ++i) player.compare("tensor", kernel, grid, block, 0, params, true);
}

constexpr std::uint64_t kMostThreadsEvaluated = 30000;

void play_random(std::uint64_t seed) {
  random_kernels::RandomKernelOptions options;
  options.seed = seed;
  options.statements = 15 + static_cast<std::uint32_t>(seed % 40);
  options.grid[0] = 150 + static_cast<std::uint32_t>(seed % 90);
  options.grid[1] = 1 + static_cast<std::uint32_t>(seed % 3);
  options.grid[2] = 1 + static_cast<std::uint32_t>(seed % 2);
  const random_kernels::RandomKernel kernel = random_kernels::make_random_kernel(options);
  Player player(kernel.ptx);
  player.add(kernel.input.data(), kernel.input.size());
  player.add(kernel.output.data(), kernel.output.size());
  player.add(kernel.accumulators.data(), kernel.accumulators.size());
  player.compare("random", "k", kernel.grid, kernel.block, kernel.dynamic_shared_bytes,
                 kernel.params(player.address(0), player.address(1), player.address(2)), true);
  // And what the scalar evaluator says, which is slow.
  if (std::uint64_t{kernel.blocks()} * kernel.threads_per_block() > kMostThreadsEvaluated) return;
  const random_kernels::RandomKernelResult told = random_kernels::evaluate(kernel);
  random_kernels::RandomKernelResult found = told;
  const std::vector<Bytes> got = player.contents();
  std::memcpy(found.output.data(), got[1].data(), found.output.size());
  std::memcpy(found.accumulators.data(), got[2].data(), found.accumulators.size());
  ++counts["random, evaluated"].launches;
  const std::string wrong = random_kernels::describe_difference(kernel, told, found);
  if (wrong.empty()) return;
  any_wrong = true;
  ++counts["random, evaluated"].different;
  std::printf("NOT AS EVALUATED random %llu: %s\n", static_cast<unsigned long long>(seed),
              wrong.c_str());
}

void play_case(const char* section, const suite::Case& work) {
  Player player(work.ptx);
  std::vector<std::uint64_t> addresses;
  for (const suite::Buffer& b : work.buffers)
    addresses.push_back(player.address(player.add(b.initial.data(), b.initial.size())));
  for (const suite::Step& step : work.steps) {
    if (const auto* s = std::get_if<suite::Launch>(&step)) {
      player.compare(section, s->kernel, s->grid.data(), s->block.data(), s->dynamic_shared,
                     suite::parameters(*s, addresses), work.deterministic);
    } else if (const auto* u = std::get_if<suite::Upload>(&step)) {
      must(cuda.cuMemcpyHtoD(addresses[u->buffer] + u->offset, u->bytes.data(), u->bytes.size()),
           "upload");
    } else if (const auto* c = std::get_if<suite::Copy>(&step)) {
      must(cuda.cuMemcpyDtoD(addresses[c->to] + c->to_offset, addresses[c->from] + c->from_offset,
                             c->bytes),
           "copy");
    } else if (const auto* f = std::get_if<suite::Fill>(&step)) {
      must(cuda.cuMemsetD8(addresses[f->buffer] + f->offset, f->value, f->bytes), "fill");
    } else if (const auto* g = std::get_if<suite::SetSymbol>(&step)) {
      CUdeviceptr at = 0;
      size_t bytes = 0;
      must(cuda.cuModuleGetGlobal(&at, &bytes, player.module(), g->name.c_str()), g->name);
      must(cuda.cuMemcpyHtoD(at + g->offset, g->bytes.data(), g->bytes.size()), "symbol");
    } else if (const auto* e = std::get_if<suite::Expect>(&step)) {
      Bytes got(e->bytes.size());
      must(cuda.cuMemcpyDtoH(got.data(), addresses[e->buffer] + e->offset, got.size()), "expect");
      if (got != e->bytes) {
        any_wrong = true;
        std::printf("NOT AS RECORDED %s\n", work.name.c_str());
      }
    }
  }
  if (!work.check) return;
  suite::Contents contents = player.contents();
  contents.resize(work.buffers.size());
  for (std::size_t k = 0; k < contents.size(); ++k)
    contents[k].resize(work.buffers[k].initial.size());
  if (const std::string wrong = work.check(contents); !wrong.empty()) {
    any_wrong = true;
    std::printf("WRONG %s: %s\n", work.name.c_str(), wrong.c_str());
  }
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

int run_job(const char* library, const std::function<void()>& job) {
  auto loaded = gpu::load_driver(library);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 3;
  }
  cuda = *loaded;
  must(cuda.cuInit(0), "cuInit");
  CUdevice device = 0;
  CUcontext context = nullptr;
  must(cuda.cuDeviceGet(&device, 0), "cuDeviceGet");
  must(cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  must(cuda.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "SMs");
  job();
  for (const auto& [what, c] : counts)
    std::printf("%s: %d launches, %d runs of clones, %d evictions, %d different\n", what.c_str(),
                c.launches, c.runs, c.evictions, c.different);
  std::fflush(stdout);
  return any_wrong ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: clone_gpu LIBCUDA CCCL-FOLDER SHARD SHARDS [ROUNDS [NAME]]\n");
    return 3;
  }
  const std::string folder = argv[2];
  const unsigned shard = static_cast<unsigned>(std::atoi(argv[3]));
  const unsigned shards = std::max(1, std::atoi(argv[4]));
  if (argc > 5) rounds = static_cast<unsigned>(std::atoi(argv[5]));
  rng.seed(shard + 1);
  struct Job {
    std::string name;
    std::function<void()> run;
  };
  std::vector<Job> jobs;
  for (const tool::hazards::Hazard& hazard : tool::hazards::all())
    jobs.push_back({std::string("hazard ") + hazard.name, [&hazard] { play_hazard(hazard); }});
  // Blocks for every SM of a large GPU, ten thousand steps each.
  for (const authors::Case& c : authors::cases(400, 44))
    jobs.push_back({std::string("author ") + c.kernel, [c] { play_author(c, authors::text()); }});
  for (const char* kernel : {"scale_tiles", "sum_rows", "changed_maps"})
    jobs.push_back({std::string("tensor ") + kernel, [kernel] { play_tensor(kernel); }});
  const std::uint64_t first = from_environment("SLUICE_RANDOM_SEED", 1);
  const std::uint64_t random = from_environment("SLUICE_RANDOM_KERNELS", 160);
  for (std::uint64_t seed = first; seed < first + random; ++seed)
    jobs.push_back({"random " + std::to_string(seed), [seed] { play_random(seed); }});
  for (const suite::Row& row : suite::catalog())
    jobs.push_back({std::string("suite ") + row.name,
                    [&row] { play_case("suite", row.make({.scale = row.gpu_scale, .seed = 1})); }});
  if (folder != "none")
    for (const std::string& name : sluice::testing::cccl_names(folder))
      jobs.push_back({"cccl " + name, [folder, name] {
                        play_case("cccl", sluice::testing::load_cccl(folder, name).work);
                      }});

  if (const char* kinds = std::getenv("SLUICE_CLONE_JOBS"))
    std::erase_if(jobs, [&](const Job& job) {
      return std::string(kinds).find(job.name.substr(0, job.name.find(' '))) == std::string::npos;
    });
  if (argc > 6)
    std::erase_if(jobs, [&](const Job& job) { return !job.name.starts_with(argv[6]); });

  // A process for each: a fault takes its context with it.
  int worst = 0;
  for (std::size_t k = shard; k < jobs.size(); k += shards) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      rng.seed(k + 1);
      _exit(run_job(argv[1], jobs[k].run));
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code != 0) std::printf("JOB %s: exit status %d\n", jobs[k].name.c_str(), code);
    if (code != 4) worst = std::max(worst, code);
  }
  return worst;
}
