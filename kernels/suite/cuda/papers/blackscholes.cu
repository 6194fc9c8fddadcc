// SPDX-License-Identifier: Apache-2.0
// Prices of European options by the formula of Black and Scholes; the cumulative normal
// distribution by polynomial 26.2.17 of Abramowitz and Stegun.
__device__ float normal_cdf(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  const float poly =
      k * (0.319381530f +
           k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
  const float tail = 0.39894228040f * expf(-0.5f * d * d) * poly;
  return d > 0 ? 1.0f - tail : tail;
}

extern "C" __global__ void blackscholes(float* call, float* put, const float* __restrict__ price,
                                        const float* __restrict__ strike,
                                        const float* __restrict__ years, float rate,
                                        float volatility, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float s = price[i], x = strike[i], t = years[i];
  const float root = sqrtf(t);
  const float d1 =
      (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
  const float d2 = d1 - volatility * root;
  const float discount = expf(-rate * t);
  const float n1 = normal_cdf(d1), n2 = normal_cdf(d2);
  call[i] = s * n1 - x * discount * n2;
  put[i] = x * discount * (1.0f - n2) - s * (1.0f - n1);
}
