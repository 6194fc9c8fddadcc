// SPDX-License-Identifier: Apache-2.0
// What the cases of the runtime API share: how an answer is checked, and the kernels of kernels.ptx
// under the host addresses by which the cases name them. One process runs all cases, through the
// channel or natively; each begins without an error and with the device as the last one left it.
//
//   OK(call)               the call succeeds
//   ANSWERS(error, call)   it answers `error`, as documented; the thread's last error is that, once
//   REFUSED(call)          it answers some error: which one is not documented, or differs by driver
//   OFFERED(call)          it succeeds, and the value is true; or the driver does not offer it, as
//                          it may by the documentation, and the value is false
//
// With SLUICE_CASES_ANSWERS in the environment each error is printed, so that tests/conformance's
// ways.py can compare what drivers answer.
#pragma once

#include <gtest/gtest.h>

#include "tests/cudart/gate/program.h"

namespace sluice::cudart {

struct Call {
  const char* file;
  int line;
  const char* text;
};
void expect_answer(const Call& call, cudaError_t expected, cudaError_t answer);
void expect_refused(const Call& call, cudaError_t answer);
bool is_offered(const Call& call, cudaError_t answer);

#define SLUICE_CALL_HERE(call) (Call{__FILE__, __LINE__, #call})
#define ANSWERS(expected, call) expect_answer(SLUICE_CALL_HERE(call), expected, (call))
#define OK(call) ANSWERS(cudaSuccess, call)
#define REFUSED(call) expect_refused(SLUICE_CALL_HERE(call), (call))
#define OFFERED(call) is_offered(SLUICE_CALL_HERE(call), (call))

// Kernels and variables of kernels.cu.
extern char host_add, host_sum_up, host_store, host_reverse;
extern char host_fetch_level, host_fetch_gradient, host_fetch_cube, host_fetch_cube_layer;
extern char host_fetch_bits, host_store_faces;
extern int host_weights[4], host_total;

class Cases : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;  // no case leaves an error behind
};

// Device memory that ends with the case.
template <class T>
class Memory {
 public:
  explicit Memory(size_t count) : count_(count) {
    void* p = nullptr;
    OK(cudaMalloc(&p, count * sizeof(T)));
    OK(cudaMemset(p, 0, count * sizeof(T)));
    at_ = static_cast<T*>(p);
  }
  ~Memory() { OK(cudaFree(at_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  T* at() const { return at_; }
  T operator[](size_t i) const {
    T value{};
    OK(cudaMemcpy(&value, at_ + i, sizeof value, cudaMemcpyDeviceToHost));
    return value;
  }
  void fill(T value) {
    for (size_t i = 0; i < count_; ++i)
      OK(cudaMemcpy(at_ + i, &value, sizeof value, cudaMemcpyHostToDevice));
  }

 private:
  size_t count_;
  T* at_ = nullptr;
};

// A stream that ends with the case.
class Stream {
 public:
  Stream() { OK(cudaStreamCreate(&stream_)); }
  ~Stream() { OK(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// add: c[i] = a[i] + b[i], in one block.
struct AddArguments {
  float *a, *b, *c;
  int n;
  void* list[4] = {&a, &b, &c, &n};
};

}  // namespace sluice::cudart
