// SPDX-License-Identifier: Apache-2.0
// A program that verifies pinned memory all the time, while somebody kills its worker.
//
//   pinned-reader ROUNDS
//       ROUNDS times: a pattern goes to the GPU and comes back, to pinned memory and to its own
//       memory. What a call said to have brought must be there, and all pinned memory must stay
//       what it was, also after the session's end. Ends with 0 after all rounds, 3 when a call
//       failed and all was right, 1 and a text when something was wrong.
//   pinned-reader churn MIB ROUNDS
//       ROUNDS times: takes MIB of pinned memory, which must be zero, fills it and gives it back.
//       0: all was right.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "abi/cuda_driver.h"

namespace {

// More than one piece of staging; more than what shares an extent with others.
constexpr size_t kWords = (3u << 20) / sizeof(uint32_t);
constexpr size_t kFewWords = 4096 / sizeof(uint32_t);
constexpr int kRoundsAfterTheEnd = 50;

uint32_t pattern(uint32_t seed, size_t i) {
  return (seed * 2654435761u + static_cast<uint32_t>(i) * 40503u) | 1;  // never zero
}

[[noreturn]] void wrong(const char* what, uint32_t seed, size_t i, uint32_t is) {
  std::printf("WRONG: %s: word %zu is %08x and not %08x\n", what, i, is, pattern(seed, i));
  std::fflush(stdout);
  std::_Exit(1);
}

void fill(uint32_t* p, size_t words, uint32_t seed) {
  for (size_t i = 0; i < words; ++i) p[i] = pattern(seed, i);
}

void verify(const char* what, const uint32_t* p, size_t words, uint32_t seed) {
  const volatile uint32_t* now = p;
  for (size_t i = 0; i < words; ++i)
    if (const uint32_t is = now[i]; is != pattern(seed, i)) wrong(what, seed, i, is);
}

uint32_t* pinned(size_t words, CUresult* status) {
  void* p = nullptr;
  if (*status == CUDA_SUCCESS) *status = cuMemHostAlloc(&p, words * sizeof(uint32_t), 0);
  return static_cast<uint32_t*>(p);
}

// After the end no call may say that it did anything.
void must_fail(CUresult r, const char* what) {
  if (r != CUDA_SUCCESS) return;
  std::printf("WRONG: %s succeeded after the session's end\n", what);
  std::fflush(stdout);
  std::_Exit(1);
}

int churn(size_t bytes, int rounds) {
  CUcontext context;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS)
    return 3;
  for (int i = 0; i < rounds; ++i) {
    void* p = nullptr;
    if (const CUresult r = cuMemHostAlloc(&p, bytes, 0); r != CUDA_SUCCESS) {
      std::printf("WRONG: round %d: no memory (%d), though all was given back\n", i, r);
      return 1;
    }
    auto* words = static_cast<uint64_t*>(p);
    for (size_t at = 0; at < bytes / sizeof *words; at += 512) {
      if (words[at] != 0) {
        std::printf("WRONG: round %d: new memory has contents\n", i);
        return 1;
      }
      words[at] = ~at;
    }
    if (cuMemFreeHost(p) != CUDA_SUCCESS) return 3;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) return churn(static_cast<size_t>(std::atoi(argv[2])) << 20, std::atoi(argv[3]));
  if (argc != 2) return 2;
  const int rounds = std::atoi(argv[1]);
  CUcontext context;
  CUstream stream = nullptr;
  CUdeviceptr device = 0;
  CUresult r = cuInit(0);
  if (r == CUDA_SUCCESS) r = cuDevicePrimaryCtxRetain(&context, 0);
  if (r == CUDA_SUCCESS) r = cuCtxSetCurrent(context);
  if (r == CUDA_SUCCESS) r = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (r == CUDA_SUCCESS) r = cuMemAlloc(&device, kWords * sizeof(uint32_t));
  uint32_t* const kept = pinned(kWords, &r);
  uint32_t* const few = pinned(kFewWords, &r);
  uint32_t* const source = pinned(kWords, &r);
  uint32_t* const results[2] = {pinned(kWords, &r), pinned(kWords, &r)};
  if (r != CUDA_SUCCESS) return 3;
  std::vector<uint32_t> pageable(kWords);
  fill(kept, kWords, 1);
  fill(few, kFewWords, 2);
  std::puts("ready");
  std::fflush(stdout);

  std::atomic<bool> stop{false};
  std::thread checker([&] {
    while (!stop) {
      verify("what the program wrote", kept, kWords, 1);
      verify("a small piece", few, kFewWords, 2);
    }
  });
  uint32_t done = 0;  // results[done % 2] has what round `done` brought; none before round 1
  for (int i = 1; i <= rounds && r == CUDA_SUCCESS; ++i) {
    const uint32_t seed = 100 + static_cast<uint32_t>(i);
    const size_t bytes = kWords * sizeof(uint32_t);
    uint32_t* const result = results[i % 2];
    fill(source, kWords, seed);
    r = cuMemcpyHtoDAsync(device, source, bytes, stream);
    if (r == CUDA_SUCCESS) r = cuMemcpyDtoHAsync(result, device, bytes, stream);
    if (r == CUDA_SUCCESS) r = cuStreamSynchronize(stream);
    if (r != CUDA_SUCCESS) break;
    verify("an asynchronous copy to pinned memory", result, kWords, seed);
    done = static_cast<uint32_t>(i);
    r = cuMemcpyDtoH(pageable.data(), device, bytes);
    if (r != CUDA_SUCCESS) break;
    verify("a copy to the program's memory", pageable.data(), kWords, seed);
    verify("an earlier result", result, kWords, seed);
  }
  if (r != CUDA_SUCCESS) {
    for (int i = 0; i < kRoundsAfterTheEnd; ++i) {
      must_fail(cuStreamSynchronize(stream), "cuStreamSynchronize");
      must_fail(cuCtxSynchronize(), "cuCtxSynchronize");
      must_fail(cuMemcpyDtoH(pageable.data(), device, 4096), "cuMemcpyDtoH");
      must_fail(cuMemcpyHtoD(device, source, 4096), "cuMemcpyHtoD");
      must_fail(cuStreamQuery(stream), "cuStreamQuery");
      verify("pinned memory after the end", kept, kWords, 1);
      if (done) verify("the last result after the end", results[done % 2], kWords, 100 + done);
    }
  }
  stop = true;
  checker.join();
  std::printf("%u rounds right, then %d\n", done, static_cast<int>(r));
  std::fflush(stdout);
  std::_Exit(r == CUDA_SUCCESS ? 0 : 3);
}
