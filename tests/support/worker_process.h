// SPDX-License-Identifier: Apache-2.0
// WorkerProcess: the fixture of the tests of a real sluice-worker process: a session on the
// software GPU with the calls that nearly every test makes. Tests only; one thread.
#pragma once

#include <gtest/gtest.h>
#include <functional>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "kernels/passes/rewrite.h"
#include "tests/support/worker_bench.h"

namespace sluice::test {

using namespace calls;

// `rounds` times out[i] = out[i] * 3 + k, one thread per element; many small blocks.
inline constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 p_out, .param .u32 p_n, .param .u32 p_k, .param .u32 p_rounds)
{
	.reg .pred %p<3>;
	.reg .b32 %r<10>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p_out];
	ld.param.u32 %r1, [p_n];
	ld.param.u32 %r8, [p_k];
	ld.param.u32 %r9, [p_rounds];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra DONE;
	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.u32 %rd3, %r5, 4;
	add.u64 %rd4, %rd2, %rd3;
	ld.global.u32 %r6, [%rd4];
AGAIN:
	mul.lo.u32 %r6, %r6, 3;
	add.u32 %r6, %r6, %r8;
	sub.u32 %r9, %r9, 1;
	setp.ne.u32 %p2, %r9, 0;
	@%p2 bra AGAIN;
	st.global.u32 [%rd4], %r6;
DONE:
	ret;
}
.visible .entry wild(.param .u64 p_out)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<3>;
	mov.u64 %rd1, 64;
	mov.u32 %r1, 1;
	st.global.u32 [%rd1], %r1;
	ret;
}
.visible .global .align 4 .u32 counter = 7;
)";

// SLUICE_TEST_LIBRARY=libcuda.so.1 runs the same tests on an NVIDIA GPU (by hand;
// SLUICE_TEST_WORKER then says where the worker is).
inline const char* from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}
inline const bool kNvidia = std::getenv("SLUICE_TEST_LIBRARY") != nullptr;
// A grid several times as large as what is resident, of launches long enough to be evicted within.
inline const uint32_t kGrid = kNvidia ? 20000 : 400;
inline const uint32_t kRounds = kNvidia ? 20000 : 1;

// What `rounds` rounds with `k` make of a value: a map v -> v * factor + adds.
inline uint32_t advance(uint32_t v, uint32_t k, uint32_t rounds) {
  uint32_t factor = 1, adds = 0, f = 3, a = k;
  for (; rounds; rounds >>= 1, a = a * f + a, f *= f) {
    if (rounds & 1) {
      adds = adds * f + a;
      factor *= f;
    }
  }
  return v * factor + adds;
}

class WorkerProcess : public testing::Test {
 protected:
  void start(WorkerBench::Options options = {}) {
    options.environment.push_back("SLUICE_SOFT_MEMORY=256M");
    options.nvidia = kNvidia;
    b = std::make_unique<WorkerBench>(from_environment("SLUICE_TEST_WORKER", SLUICE_TEST_WORKER),
                                      from_environment("SLUICE_TEST_LIBRARY", SLUICE_TEST_SOFTCUDA),
                                      std::move(options));
    ASSERT_EQ(b->ready.code, 0) << b->ready.text;
  }
  std::vector<std::byte> bytes(std::initializer_list<std::vector<std::byte>> parts) {
    std::vector<std::byte> all;
    for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
    return all;
  }
  template <class T>
  std::vector<std::byte> raw(T v) {
    std::vector<std::byte> out(sizeof v);
    std::memcpy(out.data(), &v, sizeof v);
    return out;
  }
  Answer generic(uint16_t opcode, std::initializer_list<std::vector<std::byte>> parts,
                 uint64_t ctx = 0) {
    auto body = bytes(parts);
    return b->wait(b->post(opcode, body, ctx));
  }
  // How many there are of what `post` makes, posted a few times more than `most`; 0: one was
  // refused otherwise than for want of memory. `post` gets the number of the call.
  uint64_t made_of(uint64_t most, const std::function<uint64_t(uint64_t)>& post) {
    constexpr uint64_t kBatch = 256;  // before an answer is awaited
    uint64_t made = 0;
    for (uint64_t first = 0; first < most + kBatch; first += kBatch) {
      std::vector<uint64_t> calls;
      for (uint64_t i = 0; i < kBatch; ++i) calls.push_back(post(first + i));
      for (const uint64_t call : calls) {
        const int status = b->wait(call).status;
        made += status == CUDA_SUCCESS;
        if (status != CUDA_SUCCESS && status != CUDA_ERROR_OUT_OF_MEMORY) return 0;
      }
    }
    return made;
  }
  void make_context() {
    Answer a = generic(kOpcode_cuDevicePrimaryCtxRetain, {raw<uint8_t>(1), raw<int>(0)});
    ASSERT_EQ(a.status, CUDA_SUCCESS);
    context = a.as<uint64_t>();
  }
  Answer alloc(uint64_t n) {
    return generic(kOpcode_cuMemAlloc_v2, {raw<uint8_t>(1), raw<uint64_t>(n)}, context);
  }
  Answer load(const std::string& text) {
    sluice_module_load m{};
    m.log_bytes = 1024;
    if (text.size() >
        SLUICE_RECORD_MAX_BYTES / 2) {  // by staging memory that no test copies through
      constexpr uint64_t kText = WorkerBench::kStaging + (15u << 20);
      m.bulk = {kText, text.size()};
      std::memcpy(b->bulk(kText), text.data(), text.size());
      return b->wait(b->post(SLUICE_CALL_MODULE_LOAD, m, context));
    }
    m.inline_bytes = static_cast<uint32_t>(text.size());
    std::vector<std::byte> t(text.size());
    std::memcpy(t.data(), text.data(), t.size());
    auto body = bytes({raw(m), t});
    return b->wait(b->post(SLUICE_CALL_MODULE_LOAD, body, context));
  }
  // `flags`: of add, beside that it can be evicted. `edit`: of the rewritten text.
  void make_module(uint32_t flags = 0, const std::function<void(std::string&)>& edit = {}) {
    auto rewritten = passes::rewrite_module(std::string(kPtx));
    ASSERT_TRUE(rewritten.ok());
    if (edit) edit(rewritten->text);
    for (const auto& k : rewritten->kernels) {
      if (k.name == "add") {
        ASSERT_TRUE(k.evictable) << k.reason;
        report = k;
      }
    }
    Answer a = load(rewritten->text);
    ASSERT_EQ(a.status, CUDA_SUCCESS)
        << std::string(reinterpret_cast<const char*>(a.body.data()), a.body.size());
    module = a.as<uint64_t>();
    add = function("add", SLUICE_FUNCTION_EVICTABLE | flags);
  }
  uint64_t function(const std::string& name, uint32_t flags) {
    sluice_function_get g{};
    g.module = module;
    g.flags = flags;
    g.name_bytes = static_cast<uint32_t>(name.size());
    std::vector<std::byte> t(name.size());
    std::memcpy(t.data(), name.data(), t.size());
    auto body = bytes({raw(g), t});
    Answer a = b->wait(b->post(SLUICE_CALL_FUNCTION_GET, body, context));
    EXPECT_EQ(a.status, CUDA_SUCCESS);
    return a.as<sluice_function_reply>().handle;
  }
  std::vector<std::byte> launch_body(uint64_t fn, uint32_t grid, uint32_t block, uint64_t out,
                                     uint32_t n, uint32_t k, uint64_t stream = 0,
                                     uint32_t rounds = kRounds) {
    sluice_launch l{};
    l.function = fn;
    l.stream = stream;
    l.grid[0] = grid;
    l.grid[1] = l.grid[2] = 1;
    l.block[0] = block;
    l.block[1] = l.block[2] = 1;
    l.param_bytes = 20;
    return bytes({raw(l), raw(out), raw(n), raw(k), raw(rounds)});
  }
  void launch(uint32_t grid, uint32_t block, uint64_t out, uint32_t n, uint32_t k,
              uint64_t stream = 0) {
    b->post(SLUICE_CALL_LAUNCH, launch_body(add, grid, block, out, n, k, stream), context,
            SLUICE_RECORD_NO_REPLY);
  }
  Answer sync(uint64_t ms = 60000) {
    return b->wait(
        b->post(SLUICE_CALL_SYNCHRONIZE, sluice_synchronize{SLUICE_SYNC_CONTEXT, 0, 0}, context),
        ms);
  }
  // Device memory of zeros; through the staging.
  void zero(uint64_t d, uint64_t n) {
    std::memset(b->bulk(kStaging), 0, n);
    EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_device(d, kStaging, n), context).status, 0);
  }
  // What is in device memory when everything before is done; until the staging is used again.
  const uint32_t* words(uint64_t d, uint64_t n) {
    EXPECT_EQ(b->call(SLUICE_CALL_COPY, to_host(kStaging, d, n), context).status, 0);
    return reinterpret_cast<uint32_t*>(b->bulk(kStaging));
  }
  // The session has ended with a reason that both sides can read, and the worker has exited
  // cleanly.
  void expect_violation(const char* part) {
    EXPECT_EQ(b->wait_exit(), 0);
    EXPECT_TRUE(b->ended());
    EXPECT_NE(b->slot->error, 0);
    EXPECT_NE(std::string(b->slot->reason).find(part), std::string::npos) << b->slot->reason;
    for (int i = 0; i < 200 && !b->has_ended_message; ++i) ::usleep(10000);
    EXPECT_TRUE(b->has_ended_message);
  }

  std::unique_ptr<WorkerBench> b;
  uint64_t context = 0, module = 0, add = 0;
  passes::KernelReport report;
};

}  // namespace sluice::test
