// SPDX-License-Identifier: Apache-2.0
// The Q matrix of an MRI reconstruction: for each voxel a sum of waves over the points of k-space,
// which stand in constant memory, a piece per launch.
constexpr unsigned kPiece = 256;

struct KPoint {
  float x, y, z, magnitude;
};

__constant__ KPoint mriq_points[kPiece];

// Sine and cosine of 2 pi `turns`, by Taylor's polynomials between -1/8 and 1/8 of a turn. Which of
// four values is whose is a question of the quarter, so they stand in an array, which is local
// memory.
__device__ void wave(float turns, float* sine, float* cosine) {
  const float quarters = rintf(turns * 4);
  const float angle = 6.2831853071795864769f * fmaf(quarters, -0.25f, turns), a = angle * angle;
  const float s = angle * fmaf(a, fmaf(a, fmaf(a, -1.f / 5040, 1.f / 120), -1.f / 6), 1.f);
  const float c = fmaf(a, fmaf(a, fmaf(a, fmaf(a, 1.f / 40320, -1.f / 720), 1.f / 24), -0.5f), 1.f);
  volatile float values[4] = {s, c, -s, -c};
  const int quarter = static_cast<int>(quarters) & 3;
  *sine = values[quarter];
  *cosine = values[(quarter + 1) & 3];
}

extern "C" __global__ void mriq_magnitude(const float* real, const float* imaginary, float* out,
                                          unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = real[i] * real[i] + imaginary[i] * imaginary[i];
}

extern "C" __global__ void mriq(unsigned points, const float* x, const float* y, const float* z,
                                float* real, float* imaginary) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float px = x[i], py = y[i], pz = z[i];
  float sum_real = real[i], sum_imaginary = imaginary[i];
  for (unsigned k = 0; k < points; ++k) {
    const KPoint at = mriq_points[k];
    float sine, cosine;
    wave(at.x * px + at.y * py + at.z * pz, &sine, &cosine);
    sum_real += at.magnitude * cosine;
    sum_imaginary += at.magnitude * sine;
  }
  real[i] = sum_real;
  imaginary[i] = sum_imaginary;
}
