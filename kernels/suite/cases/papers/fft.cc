// SPDX-License-Identifier: Apache-2.0
// The host side of fft.cu: forwards, checked in double precision, and back again.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/fft.ptx.h"

namespace sluice::suite {

namespace {

constexpr std::size_t kPoints = 512;

struct Complex {
  double re, im;
};

// In place, recursive, in the textbook's form (Cooley and Tukey, 1965).
void transform(std::vector<Complex>& x) {
  const std::size_t n = x.size();
  if (n == 1) return;
  std::vector<Complex> even, odd;
  for (std::size_t i = 0; i < n; i += 2) {
    even.push_back(x[i]);
    odd.push_back(x[i + 1]);
  }
  transform(even);
  transform(odd);
  for (std::size_t k = 0; k < n / 2; ++k) {
    const double angle =
        -2 * 3.14159265358979323846 * static_cast<double>(k) / static_cast<double>(n);
    const double c = std::cos(angle), s = std::sin(angle);
    const Complex t = {odd[k].re * c - odd[k].im * s, odd[k].re * s + odd[k].im * c};
    x[k] = {even[k].re + t.re, even[k].im + t.im};
    x[k + n / 2] = {even[k].re - t.re, even[k].im - t.im};
  }
}

}  // namespace

Case case_fft(const CaseOptions& options) {
  const std::uint32_t batch = scaled(options, 6);
  const auto in = uniform_floats(batch * kPoints * 2, options.seed, -1, 1);
  CaseBuilder build("fft", kFftPtx);
  const Pointer d_in = build.input("in", in);
  const Pointer d_out = build.output<float>("out", in.size());
  const Pointer d_back = build.output<float>("back", in.size());
  build.launch("fft", {batch, 1, 1}, {256, 1, 1}, 0, d_out, d_in, -1.0f, 1.0f);
  build.launch("fft", {batch, 1, 1}, {256, 1, 1}, 0, d_back, d_out, 1.0f, 1.0f / kPoints);
  build.expect<float>(d_out, 1e-4, [in] {
    std::vector<float> out;
    for (std::size_t base = 0; base < in.size(); base += 2 * kPoints) {
      std::vector<Complex> x;
      for (std::size_t i = 0; i < kPoints; ++i)
        x.push_back({in[base + 2 * i], in[base + 2 * i + 1]});
      transform(x);
      for (const Complex& each : x) {
        out.push_back(static_cast<float>(each.re));
        out.push_back(static_cast<float>(each.im));
      }
    }
    return out;
  });
  build.expect<float>(d_back, 1e-5, [in] { return in; });
  return build.take();
}

}  // namespace sluice::suite
