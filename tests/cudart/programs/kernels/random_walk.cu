// SPDX-License-Identifier: Apache-2.0
// Monte Carlo with cuRAND's device functions: XORWOW, Philox, MRG32k3a, normal and Poisson, states
// kept between launches.
#include <curand_kernel.h>

#include <cmath>
#include <vector>

#include "../check.h"
template <typename State>
__global__ void seed(State* states, unsigned long long s) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  curand_init(s, i, 0, &states[i]);
}
template <typename State>
__global__ void pi(State* states, unsigned long long* inside, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  State state = states[i];
  unsigned count = 0;
  for (int k = 0; k < n; ++k) {
    const float x = curand_uniform(&state), y = curand_uniform(&state);
    count += x * x + y * y <= 1;
  }
  atomicAdd(inside, count);
  states[i] = state;
}
__global__ void normals(curandStatePhilox4_32_10_t* states, double* sums, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto state = states[i];
  double sum = 0, squares = 0, poisson = 0;
  for (int k = 0; k < n; ++k) {
    const float4 v = curand_normal4(&state);
    sum += v.x + v.y + v.z + v.w;
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    poisson += curand_poisson(&state, 4.0);
  }
  atomicAdd(&sums[0], sum), atomicAdd(&sums[1], squares), atomicAdd(&sums[2], poisson);
  states[i] = state;
}
template <typename State>
void estimate() {
  constexpr int kThreads = 512, n = 200;
  State* states;
  unsigned long long *inside, got = 0;
  OK(cudaMalloc(&states, kThreads * sizeof(State)));
  OK(cudaMallocManaged(&inside, 8));
  *inside = 0;
  seed<<<4, 128>>>(states, 1234);
  pi<<<4, 128>>>(states, inside, n);
  pi<<<4, 128>>>(states, inside, n);
  OK(cudaDeviceSynchronize());
  got = *inside;
  CHECK(std::fabs(4.0 * got / (2.0 * kThreads * n) - 3.14159) < 0.03);
  OK(cudaFree(states));
  OK(cudaFree(inside));
}
int main() {
  estimate<curandStateXORWOW_t>();
  estimate<curandStateMRG32k3a_t>();
  estimate<curandStatePhilox4_32_10_t>();
  curandStatePhilox4_32_10_t* states;
  double *sums, got[3];
  OK(cudaMalloc(&states, 256 * sizeof *states));
  OK(cudaMalloc(&sums, 24));
  OK(cudaMemset(sums, 0, 24));
  seed<<<2, 128>>>(states, 5);
  normals<<<2, 128>>>(states, sums, 100);
  OK(cudaMemcpy(got, sums, 24, cudaMemcpyDeviceToHost));
  CHECK(std::fabs(got[0] / 102400) < 0.02 && std::fabs(got[1] / 102400 - 1) < 0.02);
  CHECK(std::fabs(got[2] / 25600 - 4) < 0.1);
  return result();
}
