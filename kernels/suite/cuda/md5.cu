// SPDX-License-Identifier: Apache-2.0
// MD5 (RFC 1321) of many small generated messages, one per thread (MD5Hash of EffiSha's
// benchmarks): message i is 32 bytes, the 16 of in[i], then i and `salt` as 64-bit little-endian
// words; out[i] is its digest. Pure integer arithmetic, barrier-free, with 16-byte vector accesses:
// the longest straight-line block-task of the suite.
// The sine table of the RFC, floor(2^32 * |sin(i + 1)|), is written out; tests check it through the
// RFC's own vectors.
__device__ constexpr unsigned kSine[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
__device__ constexpr unsigned kShift[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

extern "C" __global__ void md5(uint4* out, const uint4* in, unsigned long long salt,
                               unsigned long long n) {
  const unsigned long long i =
      blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
  if (i >= n) return;

  const uint4 head = in[i];
  const unsigned message[16] = {head.x,
                                head.y,
                                head.z,
                                head.w,
                                static_cast<unsigned>(i),
                                static_cast<unsigned>(i >> 32),
                                static_cast<unsigned>(salt),
                                static_cast<unsigned>(salt >> 32),
                                0x80u,
                                0,
                                0,
                                0,
                                0,
                                0,
                                32 * 8,
                                0};
  unsigned a = 0x67452301u, b = 0xefcdab89u, c = 0x98badcfeu, d = 0x10325476u;
#pragma unroll
  for (unsigned step = 0; step < 64; ++step) {
    unsigned f, word;
    switch (step / 16) {
      case 0:
        f = d ^ (b & (c ^ d));
        word = step;
        break;
      case 1:
        f = c ^ (d & (b ^ c));
        word = (5 * step + 1) % 16;
        break;
      case 2:
        f = b ^ c ^ d;
        word = (3 * step + 5) % 16;
        break;
      default:
        f = c ^ (b | ~d);
        word = (7 * step) % 16;
        break;
    }
    const unsigned sum = a + f + kSine[step] + message[word];
    const unsigned shift = kShift[step / 16][step % 4];
    a = d;
    d = c;
    c = b;
    b += sum << shift | sum >> (32 - shift);
  }
  out[i] = make_uint4(a + 0x67452301u, b + 0xefcdab89u, c + 0x98badcfeu, d + 0x10325476u);
}
