// SPDX-License-Identifier: Apache-2.0
// Originals against clones on a real GPU, the clones evicted at random: the hazards, kernels
// written with preempt.cuh, random kernels, the suite and the recorded CCCL programs. Run by hand
// on a machine with a GPU:
//
//   clone_gpu LIBCUDA CCCL-FOLDER SHARD SHARDS [ROUNDS [NAME]]
//
// SLUICE_RANDOM_SEED and SLUICE_RANDOM_KERNELS choose the random kernels (160 from 1 on),
// SLUICE_CLONE_JOBS which jobs there are ("hazard author tensor random suite cccl"), NAME only
// those whose names begin so ("hazard bulk"). Prints one line per tier and one per difference; exit
// status of a job 1: a clone differed, 2: one did not end, 3: the driver failed, 4: it refuses the
// original. A process for each job of the shard, one after the other. Left-over lists, proxy,
// signals by host store and by stream write are as mediator/worker uses them (abi/preempt.h), the
// rest of the worker is not in it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "kernels/suite/catalog/catalog.h"
#include "tests/authors/cases.h"
#include "tests/golden/clone_player.h"
#include "tests/golden/tensor/tensor_cases.h"
#include "tests/support/cccl_cases.h"
#include "tests/support/random/random_kernel.h"
#include "tests/unit/passes/hazards.h"

namespace {

using namespace sluice;
using namespace sluice::golden;

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

// How the driver wants parameters that come in one buffer, where one is aligned as a tensor map is:
// as PTX lays them out, or as cuFuncGetParamInfo says. Prints which; neither is wrong. The pointer
// is first, where both have it.
void tell_layout() {
  constexpr const char* kText = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .align 64 .b8 map[128], .param .u32 n)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [map+124];
  ld.param.u32 %r2, [n];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";
  constexpr std::uint32_t kSum = 0x1234, kMap = 0x1000;
  Player player(kText);
  CUfunction f = nullptr;
  must(cuda.cuModuleGetFunction(&f, player.module(), "k"), "k");
  std::size_t reported[3] = {}, sizes[3] = {}, ptx[3] = {0, 64, 192};
  for (std::size_t i = 0; i < 3; ++i)
    must(cuda.cuFuncGetParamInfo(f, i, &reported[i], &sizes[i]), "cuFuncGetParamInfo");
  const std::uint64_t out = player.address(player.add(nullptr, 16));
  std::uint32_t map[32] = {}, n = kSum - kMap;
  map[31] = kMap;
  const void* values[3] = {&out, map, &n};
  const auto by_buffer = [&](const std::size_t* offsets) {
    Bytes buffer(offsets[2] + sizeof n);
    for (int i = 0; i < 3; ++i) std::memcpy(buffer.data() + offsets[i], values[i], sizes[i]);
    std::size_t bytes = buffer.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    must(cuda.cuMemsetD32(out, 0, 1), "cuMemsetD32");
    if (const CUresult r = cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
        r != CUDA_SUCCESS)
      return gpu::describe(r);
    must(cuda.cuCtxSynchronize(), "the probe of layouts");
    std::uint32_t got = 0;
    must(cuda.cuMemcpyDtoH(&got, out, sizeof got), "cuMemcpyDtoH");
    return std::string(got == kSum ? "right" : "wrong");
  };
  const std::string as_reported = by_buffer(reported), as_ptx = by_buffer(ptx);
  std::printf(
      "one buffer, a parameter aligned to 64 bytes: the driver says it lies at %zu; laid out so "
      "%s, as PTX does %s\n",
      reported[1], as_reported.c_str(), as_ptx.c_str());
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
  const random_kernels::RandomKernelResult reported = random_kernels::evaluate(kernel);
  random_kernels::RandomKernelResult found = reported;
  const std::vector<Bytes> got = player.contents();
  std::memcpy(found.output.data(), got[1].data(), found.output.size());
  std::memcpy(found.accumulators.data(), got[2].data(), found.accumulators.size());
  ++counts["random, evaluated"].launches;
  const std::string wrong = random_kernels::describe_difference(kernel, reported, found);
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
                     suite::parameters(*s, addresses), true);
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
  jobs.push_back({"tensor layout", [] { tell_layout(); }});
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
  if (argc > 6) std::erase_if(jobs, [&](const Job& job) { return !job.name.starts_with(argv[6]); });

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
