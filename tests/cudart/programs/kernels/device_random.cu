// SPDX-License-Identifier: Apache-2.0
// Random numbers made in kernels by cuRAND's header: four generators, distributions, skips.
#include <curand_kernel.h>
#include <cmath>
#include <vector>
#include "../check.h"
template <class S>
__global__ void setup(S* s, unsigned long long seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  curand_init(seed, i, 0, &s[i]);
}
template <class S>
__global__ void uniform(S* st, double* sums, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  S s = st[i];
  double a = 0, b = 0, c = 0;
  for (int k = 0; k < n; ++k) {
    a += curand_uniform(&s);
    float g = curand_normal(&s);
    b += g;
    c += g * g;
  }
  st[i] = s;
  atomicAdd(sums, a);
  atomicAdd(sums + 1, b);
  atomicAdd(sums + 2, c);
}
__global__ void philox4(double* sums, unsigned* words) {
  curandStatePhilox4_32_10_t s;
  int i = threadIdx.x;
  curand_init(1234, i, 8, &s);
  float4 f = curand_uniform4(&s);
  uint4 u = curand4(&s);
  double2 d = curand_uniform2_double(&s);
  float4 g = curand_normal4(&s);
  words[i] = u.x ^ u.y ^ u.z ^ u.w;
  atomicAdd(sums, f.x + f.y + f.z + f.w + d.x + d.y + 0 * g.x);
  sums[1 + i] = curand_poisson(&s, 3.5) + curand_log_normal(&s, 0, 1) * 0;
}
__global__ void sobol(double* out, curandDirectionVectors32_t* v) {
  curandStateSobol32_t s;
  curand_init(v[0], 0, &s);
  for (int i = 0; i < 8; ++i) out[i] = curand_uniform(&s);
}
__global__ void skip(unsigned* o) {
  curandStateXORWOW_t a, b;
  curand_init(5, 0, 0, &a);
  curand_init(5, 0, 100, &b);
  skipahead(100, &a);
  o[0] = curand(&a);
  o[1] = curand(&b);
}
template <class S>
void test() {
  S* s;
  double* sums;
  OK(cudaMalloc(&s, 512 * sizeof(S)));
  OK(cudaMalloc(&sums, 24));
  OK(cudaMemset(sums, 0, 24));
  setup<<<4, 128>>>(s, 42);
  uniform<<<4, 128>>>(s, sums, 40);
  double g[3];
  OK(cudaMemcpy(g, sums, 24, cudaMemcpyDeviceToHost));
  double n = 512 * 40;
  CHECK(std::fabs(g[0] / n - 0.5) < 0.01);
  CHECK(std::fabs(g[1] / n) < 0.03);
  CHECK(std::fabs(g[2] / n - 1) < 0.05);
}
int main() {
  test<curandStateXORWOW_t>();
  test<curandStatePhilox4_32_10_t>();
  test<curandStateMRG32k3a_t>();
  double* d;
  unsigned* w;
  OK(cudaMalloc(&d, 8 * 200));
  OK(cudaMalloc(&w, 4 * 200));
  OK(cudaMemset(d, 0, 1600));
  philox4<<<1, 128>>>(d, w);
  double s[129];
  OK(cudaMemcpy(s, d, sizeof s, cudaMemcpyDeviceToHost));
  CHECK(s[0] > 350 && s[0] < 420);
  double p = 0;
  for (int i = 1; i < 129; ++i) p += s[i];
  CHECK(std::fabs(p / 128 - 3.5) < 0.7);
  unsigned h[2];
  skip<<<1, 1>>>(w);
  OK(cudaMemcpy(h, w, 8, cudaMemcpyDeviceToHost));
  CHECK(h[0] == h[1]);
  unsigned dir[32];
  for (int i = 0; i < 32; ++i) dir[i] = 1u << (31 - i);
  curandDirectionVectors32_t* v;
  OK(cudaMalloc(&v, 128));
  OK(cudaMemcpy(v, dir, 128, cudaMemcpyHostToDevice));
  sobol<<<1, 1>>>(d, v);
  OK(cudaMemcpy(s, d, 64, cudaMemcpyDeviceToHost));
  CHECK(std::fabs(s[1] - 0.5) < 1e-6 && std::fabs(s[2] - 0.75) < 1e-6 &&
        std::fabs(s[3] - 0.25) < 1e-6);
  OK(cudaDeviceSynchronize());
  return result();
}
