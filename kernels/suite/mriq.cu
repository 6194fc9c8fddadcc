// The Q matrix of an MRI reconstruction: for each voxel a sum of waves over the points of k-space,
// which stand in constant memory, a piece per launch.
constexpr unsigned kPiece = 256;

struct KPoint {
  float x, y, z, magnitude;
};

__constant__ KPoint mriq_points[kPiece];

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
    const float angle = 6.2831853071795864769f * (at.x * px + at.y * py + at.z * pz);
    sum_real += at.magnitude * cosf(angle);
    sum_imaginary += at.magnitude * sinf(angle);
  }
  real[i] = sum_real;
  imaginary[i] = sum_imaginary;
}
