// SPDX-License-Identifier: Apache-2.0
// One training step of a layer of a neural network (back propagation): products summed by a tree
// in shared memory, a squashing function, weights adjusted.
constexpr unsigned kEdge = 16;  // hidden units, and inputs per block

extern "C" __global__ void backprop_forward(const float* input, const float* weights,
                                            float* partial) {
  __shared__ float values[kEdge];
  __shared__ float products[kEdge][kEdge];
  const unsigned tx = threadIdx.x, ty = threadIdx.y;
  const unsigned in = blockIdx.y * kEdge + ty;
  if (tx == 0) values[ty] = input[in];
  __syncthreads();
  products[ty][tx] = weights[in * kEdge + tx] * values[ty];
  __syncthreads();
  for (unsigned i = 1; i < kEdge; i *= 2) {
    if (ty % (2 * i) == 0) products[ty][tx] += products[ty + i][tx];
    __syncthreads();
  }
  if (ty == 0) partial[blockIdx.y * kEdge + tx] = products[0][tx];
}

extern "C" __global__ void backprop_hidden(const float* partial, float* hidden, float* delta,
                                           const float* target, unsigned parts) {
  const unsigned unit = threadIdx.x;
  float sum = 0;
  for (unsigned i = 0; i < parts; ++i) sum += partial[i * kEdge + unit];
  const float value = 1.0f / (1.0f + expf(-sum));
  hidden[unit] = value;
  delta[unit] = value * (1.0f - value) * (target[unit] - value);
}

extern "C" __global__ void backprop_adjust(const float* input, const float* delta, float* weights,
                                           float* last, float rate, float momentum) {
  const unsigned in = blockIdx.y * kEdge + threadIdx.y;
  const unsigned at = in * kEdge + threadIdx.x;
  const float change = rate * delta[threadIdx.x] * input[in] + momentum * last[at];
  weights[at] += change;
  last[at] = change;
}
