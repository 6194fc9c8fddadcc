// SPDX-License-Identifier: Apache-2.0
// 9-point stencil on a grid of width x height floats (Stencil2D of EffiSha's benchmarks): the
// centre, the four neighbours beside and the four across, each group with its weight; points on the
// border are carried over. Two-dimensional blocks and grid, barrier-free, an early-return guard,
// and a branch that splits only the warps at the border. The order of operations is written out,
// so that a CPU gets the same bits. `scale` is a power of two: it tells launches apart and rounds
// nothing.
extern "C" __global__ void stencil2d(float* __restrict__ out, const float* __restrict__ in,
                                     float w_centre, float w_beside, float w_across, float scale,
                                     unsigned width, unsigned height) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;

  const unsigned long long pitch = width;
  const unsigned long long at = y * pitch + x;
  float value = in[at];
  if (x > 0 && x + 1 < width && y > 0 && y + 1 < height) {
    const float beside =
        __fadd_rn(__fadd_rn(in[at - pitch], in[at + pitch]), __fadd_rn(in[at - 1], in[at + 1]));
    const float across = __fadd_rn(__fadd_rn(in[at - pitch - 1], in[at - pitch + 1]),
                                   __fadd_rn(in[at + pitch - 1], in[at + pitch + 1]));
    value = __fmaf_rn(w_across, across, __fmaf_rn(w_beside, beside, __fmul_rn(w_centre, value)));
  }
  out[at] = __fmul_rn(scale, value);
}
