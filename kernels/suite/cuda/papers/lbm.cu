// SPDX-License-Identifier: Apache-2.0
// One step of a lattice Boltzmann fluid with 19 directions in three dimensions (D3Q19): collide,
// then stream to the neighbours; obstacles send back what reaches them. Periodic in all directions.
constexpr int kDirections = 19;

__device__ constexpr signed char kX[kDirections] = {0,  1, -1, 0, 0,  0, 0, 1, -1, 1,
                                                    -1, 1, -1, 1, -1, 0, 0, 0, 0};
__device__ constexpr signed char kY[kDirections] = {0, 0, 0, 1, -1, 0, 0,  1, -1, -1,
                                                    1, 0, 0, 0, 0,  1, -1, 1, -1};
__device__ constexpr signed char kZ[kDirections] = {0, 0, 0,  0,  0, 1, -1, 0,  0, 0,
                                                    0, 1, -1, -1, 1, 1, -1, -1, 1};

extern "C" __global__ void lbm(float* out, const float* in, const unsigned char* obstacle, int nx,
                               int ny, int nz, float omega) {
  const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  const int cells = nx * ny * nz;
  const int me = x + nx * (y + ny * z);
  float f[kDirections];
  float density = 0, ux = 0, uy = 0, uz = 0;
#pragma unroll
  for (int d = 0; d < kDirections; ++d) {
    f[d] = in[d * cells + me];
    density += f[d];
    ux += kX[d] * f[d];
    uy += kY[d] * f[d];
    uz += kZ[d] * f[d];
  }
  const bool wall = obstacle[me] != 0;
  ux /= density;
  uy /= density;
  uz /= density;
  const float still = 1.0f - 1.5f * (ux * ux + uy * uy + uz * uz);
#pragma unroll
  for (int d = 0; d < kDirections; ++d) {
    const int to_x = (x + kX[d] + nx) % nx, to_y = (y + kY[d] + ny) % ny,
              to_z = (z + kZ[d] + nz) % nz;
    const int to = to_x + nx * (to_y + ny * to_z);
    // Opposite directions are neighbours in the table.
    const int opposite = d == 0 ? 0 : ((d - 1) ^ 1) + 1;
    float value = f[opposite];
    if (!wall) {
      const float weight = d == 0 ? 1.0f / 3 : d < 7 ? 1.0f / 18 : 1.0f / 36;
      const float along = kX[d] * ux + kY[d] * uy + kZ[d] * uz;
      const float equal = weight * density * (still + 3.0f * along + 4.5f * along * along);
      value = f[d] + omega * (equal - f[d]);
    }
    out[d * cells + to] = value;
  }
}
