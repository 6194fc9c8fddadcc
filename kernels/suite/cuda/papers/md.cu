// SPDX-License-Identifier: Apache-2.0
// Lennard-Jones forces over neighbour lists (stored by neighbour, so that a warp reads in a row),
// with a cut-off: threads of a warp disagree about every neighbour.
extern "C" __global__ void md(float4* force, const float4* __restrict__ position,
                              const int* __restrict__ neighbours, int per_atom, float cutoff2,
                              float lj1, float lj2, int atoms) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= atoms) return;
  const float4 me = position[i];
  float4 f = {0, 0, 0, 0};
  for (int j = 0; j < per_atom; ++j) {
    const int other = neighbours[static_cast<size_t>(j) * atoms + i];
    if (other < 0) break;
    const float4 at = position[other];
    const float dx = me.x - at.x, dy = me.y - at.y, dz = me.z - at.z;
    float r2 = fmaf(dz, dz, fmaf(dy, dy, dx * dx));
    if (r2 >= cutoff2) continue;
    r2 = 1.0f / r2;
    const float r6 = r2 * r2 * r2;
    const float strength = r2 * r6 * (lj1 * r6 - lj2);
    f.x += dx * strength;
    f.y += dy * strength;
    f.z += dz * strength;
  }
  force[i] = f;
}
