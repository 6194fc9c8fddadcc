// SPDX-License-Identifier: Apache-2.0
#include "tests/cudart/gate/cases/cases.h"

#include <cstdio>
#include <cstdlib>

#include "kernels.ptx.h"

namespace sluice::cudart {

char host_add, host_sum_up, host_store, host_reverse;
char host_fetch_level, host_fetch_gradient, host_fetch_cube, host_fetch_cube_layer;
char host_fetch_bits, host_store_faces;
int host_weights[4], host_total;

namespace {
std::string named(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + " (" + std::to_string(error) + ")";
}

void fail(const Call& call, const std::string& what) {
  ADD_FAILURE_AT(call.file, call.line) << call.text << " " << what;
}
}  // namespace

void expect_answer(const Call& call, cudaError_t expected, cudaError_t answer) {
  if (answer == expected && answer == cudaSuccess) return;
  static const bool tells = std::getenv("SLUICE_CASES_ANSWERS") != nullptr;
  if (tells) std::printf("answer: %d: %s = %s\n", call.line, call.text, named(answer).c_str());
  const cudaError_t last = cudaGetLastError(), next = cudaGetLastError();
  if (answer != expected) {
    fail(call, "answers " + named(answer) + ", not " + named(expected));
  } else if (last != answer) {
    fail(call, "answers " + named(answer) + ", the last error is " + named(last));
  } else if (next != cudaSuccess) {
    fail(call, "leaves " + named(next));
  }
}

void expect_refused(const Call& call, cudaError_t answer) {
  if (answer == cudaSuccess) return fail(call, "succeeds");
  expect_answer(call, answer, answer);
}

bool is_offered(const Call& call, cudaError_t answer) {
  if (answer == cudaSuccess) return true;
  if (answer != cudaErrorNotSupported) fail(call, "answers " + named(answer));
  cudaGetLastError();
  return false;
}

void Cases::SetUp() {
  static Program* const program = [] {
    auto* made = new Program(fat_binary_of(sluice::suite::kKernelsPtx));
    made->kernel(&host_add, "add");
    made->kernel(&host_sum_up, "sum_up");
    made->kernel(&host_store, "store");
    made->kernel(&host_reverse, "reverse");
    made->kernel(&host_fetch_level, "fetch_level");
    made->kernel(&host_fetch_gradient, "fetch_gradient");
    made->kernel(&host_fetch_cube, "fetch_cube");
    made->kernel(&host_fetch_cube_layer, "fetch_cube_layer");
    made->kernel(&host_fetch_bits, "fetch_bits");
    made->kernel(&host_store_faces, "store_faces");
    made->variable(host_weights, "weights", sizeof host_weights);
    made->variable(&host_total, "total", sizeof host_total);
    return made;
  }();
  (void)program;
  cudaGetLastError();
}

void Cases::TearDown() {
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace sluice::cudart
