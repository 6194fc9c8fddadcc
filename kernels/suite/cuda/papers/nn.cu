// SPDX-License-Identifier: Apache-2.0
// Nearest neighbour: the distance of every record to a place; a 2-D grid, as the number of blocks
// along x was limited once.
extern "C" __global__ void nn(const float2* places, float* distances, unsigned records,
                              float latitude, float longitude) {
  const unsigned i = blockDim.x * (gridDim.x * blockIdx.y + blockIdx.x) + threadIdx.x;
  if (i < records) {
    const float2 at = places[i];
    distances[i] =
        sqrtf((latitude - at.x) * (latitude - at.x) + (longitude - at.y) * (longitude - at.y));
  }
}
