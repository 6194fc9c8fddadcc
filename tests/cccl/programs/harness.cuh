// SPDX-License-Identifier: Apache-2.0
// What the CCCL programs share: inputs, device memory, verdicts. A program is an ordinary CUDA
// program; a *case* in it is one algorithm instantiation with its inputs and its CPU check. Run
// with the recording runtime (../record/cudart.cc), each case becomes one trace.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

// Of the recording runtime: a case begins (its file is NAME.trace) and has ended, right or wrong.
extern "C" void sluice_record_begin(const char* name);
extern "C" void sluice_record_end(int right);

inline int g_wrong = 0;

inline void must(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
  std::exit(1);
}
#define MUST(call) must((call), #call)

// Device memory of a case; given back at its end.
template <class T>
class Device {
 public:
  explicit Device(std::size_t count) : count_(count) { MUST(cudaMalloc(&data_, bytes())); }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    MUST(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  Device(const Device&) = delete;
  ~Device() { cudaFree(data_); }
  operator T*() { return static_cast<T*>(data_); }
  T* get() { return static_cast<T*>(data_); }
  std::vector<T> read() { return read(count_); }
  std::vector<T> read(std::size_t count) {
    std::vector<T> values(count);
    MUST(cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  T first() { return read(1)[0]; }

 private:
  std::size_t bytes() const { return std::max<std::size_t>(1, count_ * sizeof(T)); }
  std::size_t count_;
  void* data_ = nullptr;
};

// CUB's two-phase calls: asks for the size, allocates, runs.
template <class F>
void with_temp(F call) {
  std::size_t bytes = 0;
  MUST(call(static_cast<void*>(nullptr), bytes));
  Device<char> temp(bytes);
  MUST(call(static_cast<void*>(temp.get()), bytes));
  MUST(cudaDeviceSynchronize());
}

// `count` values of small range (they compress, and sums of them are exact in every type).
template <class T>
std::vector<T> values(std::size_t count, std::uint32_t seed, std::uint32_t range = 1000) {
  std::vector<T> result(count);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (T& value : result) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    value = static_cast<T>(static_cast<std::int64_t>((state >> 33) % range));
  }
  return result;
}
template <class T>
std::vector<T> signed_values(std::size_t count, std::uint32_t seed, std::uint32_t range = 1000) {
  std::vector<T> result = values<T>(count, seed, range);
  for (T& value : result) value = static_cast<T>(value - static_cast<T>(range / 2));
  return result;
}

// Runs one case; `body` returns whether its results are right.
template <class F>
void run_case(const char* name, F body) {
  sluice_record_begin(name);
  const bool right = body();
  sluice_record_end(right ? 1 : 0);
  if (right) return;
  std::fprintf(stderr, "%s: wrong result\n", name);
  ++g_wrong;
}

inline int finish() { return g_wrong == 0 ? 0 : 1; }

// A type that no hardware operation covers: two words and a double.
struct Triple {
  int key;
  int tag;
  double weight;
  __host__ __device__ bool operator==(const Triple& other) const {
    return key == other.key && tag == other.tag && weight == other.weight;
  }
};
struct TripleLess {
  __host__ __device__ bool operator()(const Triple& a, const Triple& b) const {
    return a.key < b.key;
  }
};
struct TripleAdd {
  __host__ __device__ Triple operator()(const Triple& a, const Triple& b) const {
    return {a.key + b.key, b.tag, a.weight + b.weight};
  }
};
inline std::vector<Triple> triples(std::size_t count, std::uint32_t seed, std::uint32_t range) {
  const std::vector<int> keys = values<int>(count, seed, range);
  std::vector<Triple> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = {keys[i], static_cast<int>(i), static_cast<double>(i % 64)};
  return result;
}

constexpr int kItems = 12000;  // several tiles of every algorithm
