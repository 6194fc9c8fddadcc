// SPDX-License-Identifier: Apache-2.0
// Sums of absolute differences for motion search: a block of threads does one 4x4 piece of the
// picture, a thread each of the places in the search window; then 8x8 pieces from four of 4x4.
constexpr int kPiece = 4;
constexpr int kRange = 4;                   // places -4 .. 4 in both directions
constexpr int kWindow = 2 * kRange + 1;     // 9
constexpr int kPlaces = kWindow * kWindow;  // 81
constexpr int kArea = kPiece + 2 * kRange;  // 12

extern "C" __global__ void sad_4x4(unsigned short* out, const unsigned char* frame,
                                   const unsigned char* reference, int width, int height) {
  __shared__ unsigned char area[kArea][kArea];
  __shared__ unsigned char piece[kPiece][kPiece];
  const int x0 = blockIdx.x * kPiece, y0 = blockIdx.y * kPiece;
  for (int i = threadIdx.x; i < kArea * kArea; i += blockDim.x) {
    const int x = min(max(x0 + i % kArea - kRange, 0), width - 1);
    const int y = min(max(y0 + i / kArea - kRange, 0), height - 1);
    area[i / kArea][i % kArea] = reference[y * width + x];
  }
  if (threadIdx.x < kPiece * kPiece) {
    const int x = threadIdx.x % kPiece, y = threadIdx.x / kPiece;
    piece[y][x] = frame[(y0 + y) * width + x0 + x];
  }
  __syncthreads();
  const int place = threadIdx.x;
  if (place >= kPlaces) return;
  const int dx = place % kWindow, dy = place / kWindow;
  unsigned sum = 0;
#pragma unroll
  for (int y = 0; y < kPiece; ++y)
#pragma unroll
    for (int x = 0; x < kPiece; ++x) sum = __usad(piece[y][x], area[y + dy][x + dx], sum);
  out[(blockIdx.y * gridDim.x + blockIdx.x) * kPlaces + place] = static_cast<unsigned short>(sum);
}

// Grid: one block per 8x8 piece.
extern "C" __global__ void sad_8x8(unsigned short* out, const unsigned short* in) {
  const int place = threadIdx.x;
  if (place >= kPlaces) return;
  const int across = gridDim.x * 2;
  unsigned sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += in[((blockIdx.y * 2 + i / 2) * across + blockIdx.x * 2 + i % 2) * kPlaces + place];
  out[(blockIdx.y * gridDim.x + blockIdx.x) * kPlaces + place] = static_cast<unsigned short>(sum);
}
