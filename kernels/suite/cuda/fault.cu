// SPDX-License-Identifier: Apache-2.0
// Writes far outside of any allocation on purpose: element i * stride of `out`. Shows that such a
// kernel costs its own session and nobody else's (sluice-suite-fault).
extern "C" __global__ void fault(unsigned* out, unsigned long long stride) {
  const unsigned long long i =
      blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
  out[i * stride] = static_cast<unsigned>(i);
}
