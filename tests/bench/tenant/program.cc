// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/tenant/program.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>

#include "held_out.ptx.h"
#include "kernels/suite/catalog/catalog.h"
#include "tests/bench/work_kernel.h"

namespace sluice::bench {

namespace {

using suite::DeviceBuffer;

// `work` with its blocks' times.
constexpr char kStampedPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry stamped(.param .u64 out, .param .u32 steps, .param .u64 times)
{
  .reg .u64 %rd<10>; .reg .u32 %r<6>; .reg .pred %p<4>;
  mov.u64 %rd4, %globaltimer;
  ld.param.u32 %r1, [steps];
)" SLUICE_BENCH_LOOP R"(
  @!%p2 bra DONE;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r5, %ctaid.x;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  red.global.add.u32 [%rd3], %r4;
  ld.param.u64 %rd5, [times];
  cvta.to.global.u64 %rd5, %rd5;
  mul.wide.u32 %rd6, %r5, 16;
  add.s64 %rd7, %rd5, %rd6;
  mov.u64 %rd8, %globaltimer;
  st.global.u64 [%rd7], %rd4;
  st.global.u64 [%rd7+8], %rd8;
DONE:
  ret;
}
)";

constexpr std::uint32_t kWorkThreads = 128;

// FNV-1a over words.
class Hash {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
      std::uint64_t word;
      std::memcpy(&word, p + i, 8);
      mix(word);
    }
    for (; i < bytes; ++i) mix(p[i]);
  }
  std::uint64_t value() const { return value_; }

 private:
  void mix(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3ull;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value_ = 0xcbf29ce484222325ull;
};

std::uint32_t number(const std::string& text) {
  const unsigned long n = std::strtoul(text.c_str(), nullptr, 10);
  if (n == 0 || n > 0x7fffffff) throw std::runtime_error("no number above 0: " + text);
  return static_cast<std::uint32_t>(n);
}

CUfunction function_of(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  SLUICE_SUITE_CALL(cuModuleGetFunction(&function, module, name));
  return function;
}

// The module of a text of this file's, loaded once and kept as long as the process.
CUmodule module_of(const char* ptx) {
  static auto& modules = *new std::map<const char*, suite::Module>;
  const auto found = modules.find(ptx);
  if (found != modules.end()) return found->second.get();
  return modules.emplace(ptx, suite::make_module(ptx)).first->second.get();
}

void launch(CUfunction f, std::uint32_t blocks, std::uint32_t threads, CUstream stream,
            void** arguments) {
  SLUICE_SUITE_CALL(cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr));
}

// Filled when this returns. A fill in the legacy stream may end later than its call, and a tenant's
// stream does not wait for that one: what a launch had counted would be set to 0.
void fill_now(CUdeviceptr to, std::uint32_t value, std::size_t words) {
  SLUICE_SUITE_CALL(cuMemsetD32(to, value, words));
  SLUICE_SUITE_CALL(cuStreamSynchronize(nullptr));
}

// How often each block has run so far, compared with what was queued.
class Counts {
 public:
  explicit Counts(std::uint32_t blocks)
      : expected_(blocks), buffer_(suite::make_device_buffer(std::size_t{blocks} * 4)) {
    fill_now(buffer_.get(), 0, blocks);
  }
  CUdeviceptr address() const { return buffer_.get(); }
  void queued(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = first; i < first + count; ++i) ++expected_[i];
  }
  void queued_all() { ++whole_; }
  Verdict verdict() const {
    std::vector<std::uint32_t> got(expected_.size());
    SLUICE_SUITE_CALL(cuMemcpyDtoH(got.data(), buffer_.get(), got.size() * 4));
    std::size_t wrong = 0, first = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::uint32_t n = expected_[i] + whole_;
      if (has_run(got[i], n)) continue;
      if (wrong++ == 0) first = i;
    }
    Verdict verdict;
    verdict.comparable = false;
    if (wrong != 0)
      verdict.wrong = std::to_string(wrong) + " blocks did not run as often as they were launched" +
                      ", first block " + std::to_string(first) + ": " + std::to_string(got[first]) +
                      ", not " + std::to_string(expected_[first] + whole_);
    return verdict;
  }

 private:
  std::vector<std::uint32_t> expected_;
  std::uint32_t whole_ = 0;
  DeviceBuffer buffer_;
};

class Work : public TenantProgram {
 public:
  Work(std::uint32_t blocks, std::uint32_t steps)
      : blocks_(blocks),
        steps_(steps),
        function_(function_of(module_of(kWorkPtx), "work")),
        counts_(blocks) {}

  void queue(CUstream stream) override {
    start(stream, 0, blocks_);
    counts_.queued_all();
  }
  bool queue_slice(CUstream stream, std::uint32_t first, std::uint32_t count) override {
    start(stream, first, count);
    counts_.queued(first, count);
    return true;
  }
  std::uint32_t blocks() const override { return blocks_; }
  Verdict verdict(CUstream, bool) override { return counts_.verdict(); }

 private:
  void start(CUstream stream, std::uint32_t first, std::uint32_t count) {
    CUdeviceptr out = counts_.address();
    void* arguments[] = {&out, &steps_, &first};
    launch(function_, count, kWorkThreads, stream, arguments);
  }
  std::uint32_t blocks_, steps_;
  CUfunction function_;
  Counts counts_;
};

class Stamped : public StampedProgram {
 public:
  Stamped(std::uint32_t blocks, std::uint32_t steps)
      : blocks_(blocks),
        steps_(steps),
        function_(function_of(module_of(kStampedPtx), "stamped")),
        counts_(blocks),
        times_(suite::make_device_buffer(std::size_t{blocks} * sizeof(BlockStamp))) {}

  void queue(CUstream stream) override {
    CUdeviceptr out = counts_.address(), times = times_.get();
    void* arguments[] = {&out, &steps_, &times};
    launch(function_, blocks_, kWorkThreads, stream, arguments);
    counts_.queued_all();
  }
  Verdict verdict(CUstream, bool) override { return counts_.verdict(); }
  std::vector<BlockStamp> stamps(CUstream stream) override {
    std::vector<BlockStamp> stamps(blocks_);
    SLUICE_SUITE_CALL(cuStreamSynchronize(stream));
    SLUICE_SUITE_CALL(
        cuMemcpyDtoH(stamps.data(), times_.get(), stamps.size() * sizeof(BlockStamp)));
    return stamps;
  }

 private:
  std::uint32_t blocks_, steps_;
  CUfunction function_;
  Counts counts_;
  DeviceBuffer times_;
};

class Chain : public TenantProgram {
 public:
  Chain(std::vector<std::uint32_t> sizes, std::uint32_t steps)
      : sizes_(std::move(sizes)),
        steps_(steps),
        function_(function_of(module_of(kWorkPtx), "work")),
        counts_(*std::max_element(sizes_.begin(), sizes_.end())) {}

  void queue(CUstream stream) override {
    std::uint32_t first = 0;
    for (std::uint32_t blocks : sizes_) {
      CUdeviceptr out = counts_.address();
      void* arguments[] = {&out, &steps_, &first};
      launch(function_, blocks, kWorkThreads, stream, arguments);
    }
    ++units_;
  }
  Verdict verdict(CUstream, bool) override {
    for (; units_ != 0; --units_)
      for (std::uint32_t blocks : sizes_) counts_.queued(0, blocks);
    return counts_.verdict();
  }

 private:
  std::vector<std::uint32_t> sizes_;
  std::uint32_t steps_;
  std::uint64_t units_ = 0;  // queued since the verdict before
  CUfunction function_;
  Counts counts_;
};

// Elements of inputs and results for each block, and what does not depend on blocks.
struct HeldOutKernel {
  const char* name;
  std::uint32_t threads, a, b, out, b_fixed, m;
};
constexpr HeldOutKernel kHeldOut[] = {
    {"hotspot", 256, 256, 256, 256, 0, 1},
    {"diffusion", 256, 256, 0, 256, 0, 1},
    {"kmeans", 256, 1024, 0, 256, 4 * 64, 64},
    {"alignment", 32, 32, 0, 32, 0, 4},
    {"layernorm", 256, 1024, 0, 1024, 256, 1},
    {"rotary", 256, 512, 0, 512, 0, 1},
    {"gelu", 256, 256, 256, 256, 0, 1},
    {"attention", 128, 128, 0, 128, 64 * 256, 256},
    {"embedding", 256, 256, 0, 256, 0, 16},
    {"gemv", 256, 8192, 0, 8, 1024, 1},
    {"convolution3", 256, 256, 0, 256, 9 * 16, 16},
    {"maxpool", 256, 1024, 0, 256, 0, 1},
    {"adam", 256, 256, 256, 256, 0, 1},
    {"nbody", 128, 512, 0, 512, 512 * 32, 32},
    {"mandelbrot", 256, 0, 0, 256, 0, 512},
    {"chacha", 128, 0, 0, 128, 0, 8},
    {"bitonic", 256, 512, 0, 512, 0, 1},
    {"asian_option", 256, 256, 0, 256, 0, 128},
    {"floyd", 256, 256, 0, 256, 0, 8},
    {"bilateral", 256, 256, 0, 256, 0, 1},
};
// Images have whole rows of tiles (kWidth / kTileX of held_out.cu).
constexpr std::size_t kTilesAcross = 128;

class HeldOut : public TenantProgram {
 public:
  HeldOut(const HeldOutKernel& kernel, std::uint32_t blocks)
      : kernel_(kernel),
        blocks_(blocks),
        function_(function_of(module_of(suite::kHeldOutPtx), kernel.name)),
        out_elements_(elements(kernel.out)) {
    a_ = filled(elements(kernel.a), 1);
    b_ = filled(elements(kernel.b) + kernel.b_fixed, 2);
    out_ = suite::make_device_buffer(out_elements_ * 4);
    fill_now(out_.get(), 0x7fc0dead, out_elements_);
  }

  void queue(CUstream stream) override {
    CUdeviceptr out = out_.get(), a = a_.get(), b = b_.get();
    std::uint32_t m = kernel_.m;
    void* arguments[] = {&out, &a, &b, &blocks_, &m};
    launch(function_, blocks_, kernel_.threads, stream, arguments);
  }
  Verdict verdict(CUstream stream, bool) override {
    // Poisoned, so that the hash is that of one launch.
    SLUICE_SUITE_CALL(cuMemsetD32Async(out_.get(), 0x7fc0dead, out_elements_, stream));
    queue(stream);
    SLUICE_SUITE_CALL(cuStreamSynchronize(stream));
    std::vector<float> out(out_elements_);
    SLUICE_SUITE_CALL(cuMemcpyDtoH(out.data(), out_.get(), out.size() * 4));
    Hash hash;
    hash.add(out.data(), out.size() * 4);
    return {{}, hash.value(), true};
  }

 private:
  std::size_t elements(std::uint32_t each) const {
    return (blocks_ + kTilesAcross) / kTilesAcross * kTilesAcross * each;
  }
  DeviceBuffer filled(std::size_t count, std::uint32_t seed) {
    DeviceBuffer buffer = suite::make_device_buffer(std::max<std::size_t>(count, 1) * 4);
    if (count == 0) return buffer;
    CUdeviceptr at = buffer.get();
    auto elements = static_cast<std::uint32_t>(count);
    void* arguments[] = {&at, &elements, &seed};
    launch(function_of(module_of(suite::kHeldOutPtx), "fill"), std::min(elements / 256 + 1, 1056u),
           256, nullptr, arguments);
    SLUICE_SUITE_CALL(cuCtxSynchronize());
    return buffer;
  }

  const HeldOutKernel& kernel_;
  std::uint32_t blocks_;
  CUfunction function_;
  std::size_t out_elements_;
  DeviceBuffer a_, b_, out_;
};

class Recorded : public TenantProgram {
 public:
  explicit Recorded(suite::Case work)
      : work_(std::move(work)), module_(suite::make_module(work_.ptx.c_str())) {
    for (const suite::Buffer& buffer : work_.buffers) {
      buffers_.push_back(
          suite::make_device_buffer(std::max<std::size_t>(buffer.initial.size(), 1)));
      addresses_.push_back(buffers_.back().get());
    }
    reset();
  }

  void queue(CUstream stream) override {
    for (const suite::Step& step : work_.steps)
      std::visit([&](const auto& each) { act(each, stream); }, step);
  }
  Verdict verdict(CUstream stream, bool whole) override {
    reset();
    queue(stream);
    SLUICE_SUITE_CALL(cuStreamSynchronize(stream));
    suite::Contents contents;
    Hash hash;
    for (std::size_t k = 0; k < work_.buffers.size(); ++k) {
      contents.emplace_back(work_.buffers[k].initial.size());
      if (!contents[k].empty())
        SLUICE_SUITE_CALL(cuMemcpyDtoH(contents[k].data(), addresses_[k], contents[k].size()));
      hash.add(contents[k].data(), contents[k].size());
    }
    return {whole ? work_.check(contents) : std::string(), hash.value(), true};
  }

 private:
  void reset() {
    for (std::size_t k = 0; k < work_.buffers.size(); ++k) {
      const auto& initial = work_.buffers[k].initial;
      if (!initial.empty())
        SLUICE_SUITE_CALL(cuMemcpyHtoD(addresses_[k], initial.data(), initial.size()));
    }
  }
  void act(const suite::Upload& step, CUstream stream) {
    if (!step.bytes.empty())
      SLUICE_SUITE_CALL(cuMemcpyHtoDAsync(addresses_[step.buffer] + step.offset, step.bytes.data(),
                                          step.bytes.size(), stream));
  }
  void act(const suite::Copy& step, CUstream stream) {
    SLUICE_SUITE_CALL(cuMemcpyDtoDAsync(addresses_[step.to] + step.to_offset,
                                        addresses_[step.from] + step.from_offset, step.bytes,
                                        stream));
  }
  void act(const suite::Fill& step, CUstream stream) {
    SLUICE_SUITE_CALL(
        cuMemsetD8Async(addresses_[step.buffer] + step.offset, step.value, step.bytes, stream));
  }
  void act(const suite::SetSymbol& step, CUstream stream) {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    SLUICE_SUITE_CALL(cuModuleGetGlobal(&address, &bytes, module_.get(), step.name.c_str()));
    if (step.offset + step.bytes.size() > bytes)
      throw std::runtime_error(step.name + " is smaller than the data for it");
    SLUICE_SUITE_CALL(
        cuMemcpyHtoDAsync(address + step.offset, step.bytes.data(), step.bytes.size(), stream));
  }
  void act(const suite::Expect&, CUstream) {}
  void act(const suite::Launch& each, CUstream stream) {
    CUfunction& function = functions_[each.kernel];
    if (function == nullptr) function = function_of(module_.get(), each.kernel.c_str());
    std::vector<std::byte> block = suite::parameters(each, addresses_);
    std::vector<void*> pointers;
    for (std::uint32_t offset : each.param_offsets) pointers.push_back(block.data() + offset);
    SLUICE_SUITE_CALL(cuLaunchKernel(function, each.grid[0], each.grid[1], each.grid[2],
                                     each.block[0], each.block[1], each.block[2],
                                     each.dynamic_shared, stream, pointers.data(), nullptr));
  }

  suite::Case work_;
  suite::Module module_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::uint64_t> addresses_;
  std::map<std::string, CUfunction> functions_;
};

std::vector<std::uint32_t> numbers(const std::string& text) {
  std::vector<std::uint32_t> result;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) result.push_back(number(part));
  if (result.empty()) throw std::runtime_error("no sizes");
  return result;
}

}  // namespace

std::unique_ptr<TenantProgram> make_program(const std::vector<std::string>& words) {
  if (words.size() != 3) throw std::runtime_error("a program is a kind and two values");
  const std::string &kind = words[0], &what = words[1], &value = words[2];
  if (kind == "work") return std::make_unique<Work>(number(what), number(value));
  if (kind == "stamped") return std::make_unique<Stamped>(number(what), number(value));
  if (kind == "chain") return std::make_unique<Chain>(numbers(what), number(value));
  if (kind == "held") {
    for (const HeldOutKernel& kernel : kHeldOut)
      if (what == kernel.name) return std::make_unique<HeldOut>(kernel, number(value));
    throw std::runtime_error("no held-out kernel " + what);
  }
  if (kind == "case") {
    const suite::Row* row = suite::find_row(what);
    const double scale = std::atof(value.c_str());
    if (row == nullptr || !(scale > 0)) throw std::runtime_error("no case " + what);
    return std::make_unique<Recorded>(row->make({.scale = scale}));
  }
  throw std::runtime_error("no kind of program: " + kind);
}

}  // namespace sluice::bench
