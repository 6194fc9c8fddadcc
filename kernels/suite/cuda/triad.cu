// SPDX-License-Identifier: Apache-2.0
// STREAM triad: a[i] = b[i] + s * c[i] in double precision, one element per thread.
// The smallest block-task of the suite (a few loads, one store), hence the worst case for the
// persistent form (EffiSha, PPoPP'17, section 6; STREAM, J. D. McCalpin). Barrier-free, with the
// early-return guard that nearly every kernel has. The multiply-add is written out as one fused
// operation, so that a CPU gets the same bits.
extern "C" __global__ void triad(double* a, const double* b, const double* c, double s,
                                 unsigned long long n) {
  const unsigned long long i =
      blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  a[i] = __fma_rn(s, c[i], b[i]);
}
