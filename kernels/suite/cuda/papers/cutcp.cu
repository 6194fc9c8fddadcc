// SPDX-License-Identifier: Apache-2.0
// Coulomb potential with a cut-off on a lattice: atoms sorted into cubic bins of fixed room; a
// block of 8x8x2 lattice points goes through the 27 bins around, one after the other in shared
// memory.
constexpr int kRoom = 8;  // atoms per bin
constexpr int kEdge = 8;  // lattice points along a bin's edge

__constant__ int cutcp_offsets[27 * 3];

// Unused places have charge 0. Bins have a border of empty ones all around.
extern "C" __global__ void cutcp(float* potential, const float4* bins, int bins_x, int bins_y,
                                 float spacing, float cutoff2) {
  __shared__ float4 atoms[kRoom];
  const int x = blockIdx.x * kEdge + threadIdx.x;
  const int y = blockIdx.y * kEdge + threadIdx.y;
  const int z = blockIdx.z * blockDim.z + threadIdx.z;
  const int t = threadIdx.x + kEdge * (threadIdx.y + kEdge * threadIdx.z);
  const float px = __fmul_rn(x, spacing), py = __fmul_rn(y, spacing), pz = __fmul_rn(z, spacing);
  const int bin_z = blockIdx.z * blockDim.z / kEdge;
  float sum = 0;
  for (int i = 0; i < 27; ++i) {
    const int at = (blockIdx.x + 1 + cutcp_offsets[3 * i]) +
                   bins_x * ((blockIdx.y + 1 + cutcp_offsets[3 * i + 1]) +
                             bins_y * (bin_z + 1 + cutcp_offsets[3 * i + 2]));
    __syncthreads();
    if (t < kRoom) atoms[t] = bins[at * kRoom + t];
    __syncthreads();
    for (int k = 0; k < kRoom; ++k) {
      const float4 atom = atoms[k];
      if (atom.w == 0) break;
      const float dx = atom.x - px, dy = atom.y - py, dz = atom.z - pz;
      const float r2 = fmaf(dz, dz, fmaf(dy, dy, dx * dx));
      if (r2 < cutoff2) {
        const float s = 1.0f - r2 * (1.0f / cutoff2);
        sum += atom.w * rsqrtf(r2) * s * s;
      }
    }
  }
  potential[x + gridDim.x * kEdge * (y + gridDim.y * kEdge * z)] = sum;
}
