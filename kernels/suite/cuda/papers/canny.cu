// SPDX-License-Identifier: Apache-2.0
// Canny's edge detector in integers, four kernels: smoothing, gradient, thinning, and edges that
// grow from strong pixels over weak ones.
constexpr int kTile = 16;
constexpr int kBorder = 2;

__constant__ int canny_weights[25];  // their sum is 159

extern "C" __global__ void canny_gauss(unsigned char* out, const unsigned char* in, int width,
                                       int height) {
  __shared__ unsigned char tile[kTile + 2 * kBorder][kTile + 2 * kBorder];
  constexpr int edge = kTile + 2 * kBorder;
  for (int i = threadIdx.y * kTile + threadIdx.x; i < edge * edge; i += kTile * kTile) {
    const int x = min(max(static_cast<int>(blockIdx.x) * kTile + i % edge - kBorder, 0), width - 1);
    const int y =
        min(max(static_cast<int>(blockIdx.y) * kTile + i / edge - kBorder, 0), height - 1);
    tile[i / edge][i % edge] = in[y * width + x];
  }
  __syncthreads();
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  if (x >= width || y >= height) return;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 25; ++i)
    sum += canny_weights[i] * tile[threadIdx.y + i / 5][threadIdx.x + i % 5];
  out[y * width + x] = static_cast<unsigned char>(sum / 159);
}

// Direction 0: across, 1: falling, 2: up and down, 3: rising; where the gradient points.
extern "C" __global__ void canny_sobel(short* strength, unsigned char* direction,
                                       const unsigned char* in, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
    strength[y * width + x] = 0;
    direction[y * width + x] = 0;
    return;
  }
  const unsigned char* p = in + y * width + x;
  const int gx = p[1 - width] + 2 * p[1] + p[1 + width] - p[-1 - width] - 2 * p[-1] - p[-1 + width];
  const int gy =
      p[width - 1] + 2 * p[width] + p[width + 1] - p[-width - 1] - 2 * p[-width] - p[-width + 1];
  const int ax = abs(gx), ay = abs(gy);
  strength[y * width + x] = static_cast<short>(ax + ay);
  // tan(22.5 degrees) is close to 106 / 256.
  direction[y * width + x] = ay * 256 < ax * 106   ? 0
                             : ax * 256 < ay * 106 ? 2
                             : (gx ^ gy) >= 0      ? 1
                                                   : 3;
}

// 0 nothing, 1 weak, 2 strong.
extern "C" __global__ void canny_thin(unsigned char* out, const short* strength,
                                      const unsigned char* direction, int low, int high, int width,
                                      int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int i = y * width + x;
  unsigned char result = 0;
  if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
    int step = 1;
    switch (direction[i]) {
      case 1:
        step = width + 1;
        break;
      case 2:
        step = width;
        break;
      case 3:
        step = width - 1;
        break;
      default:
        break;
    }
    const int s = strength[i];
    if (s > strength[i - step] && s >= strength[i + step])
      result = s >= high ? 2 : s >= low ? 1 : 0;
  }
  out[i] = result;
}

extern "C" __global__ void canny_grow(unsigned char* out, const unsigned char* in, int width,
                                      int height, int last) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  unsigned char result = in[y * width + x];
  if (result == 1) {
    for (int dy = -1; dy <= 1; ++dy)
      for (int dx = -1; dx <= 1; ++dx) {
        const int u = x + dx, v = y + dy;
        if (u < 0 || v < 0 || u >= width || v >= height) continue;
        if (in[v * width + u] == 2) result = 2;
      }
  }
  out[y * width + x] = last ? (result == 2 ? 255 : 0) : result;
}
