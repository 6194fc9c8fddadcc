// SPDX-License-Identifier: Apache-2.0
// Histograms, loops, transforms and batched copies of CUB.
#include <cub/device/device_copy.cuh>
#include <cub/device/device_for.cuh>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_transform.cuh>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cuda/std/tuple>

#include "harness.cuh"

struct Doubler {
  __device__ void operator()(int& value) const { value *= 2; }
};
struct WriteSquare {
  long long* out;
  __device__ void operator()(int i) const { out[i] = static_cast<long long>(i) * i; }
};
struct Blend {
  __host__ __device__ float operator()(float a, float b) const { return 2 * a + b; }
};
struct Halve {
  __host__ __device__ int operator()(int a) const { return a / 2; }
};
struct RangeOf {
  const int* offsets;
  int* base;
  __host__ __device__ int* operator()(int i) const { return base + offsets[i]; }
};
struct SizeOf {
  const int* offsets;
  int unit;
  __host__ __device__ int operator()(int i) const { return (offsets[i + 1] - offsets[i]) * unit; }
};

int main() {
  run_case("cub_histogram_even", [] {
    const auto in = values<float>(kItems, 1, 1024);
    Device<float> d_in(in);
    Device<int> d_bins(64);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceHistogram::HistogramEven(temp, bytes, d_in.get(), d_bins.get(), 65, 0.0f,
                                                 1024.0f, kItems);
    });
    std::vector<int> want(64);
    for (float value : in) ++want[static_cast<int>(value) / 16];
    return d_bins.read() == want;
  });
  run_case("cub_histogram_range", [] {
    const auto in = values<int>(kItems, 2);
    const std::vector<int> levels = {0, 10, 50, 120, 400, 401, 800, 999};
    Device<int> d_in(in), d_levels(levels), d_bins(levels.size() - 1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceHistogram::HistogramRange(temp, bytes, d_in.get(), d_bins.get(),
                                                  static_cast<int>(levels.size()), d_levels.get(),
                                                  kItems);
    });
    std::vector<int> want(levels.size() - 1);
    for (int value : in)
      for (size_t bin = 0; bin + 1 < levels.size(); ++bin)
        if (value >= levels[bin] && value < levels[bin + 1]) ++want[bin];
    return d_bins.read() == want;
  });
  run_case("cub_histogram_multi_even", [] {
    const auto in = values<unsigned char>(kItems * 4, 3, 256);
    Device<unsigned char> d_in(in);
    Device<int> red(256), green(256), blue(256);
    int* bins[3] = {red, green, blue};
    int levels[3] = {257, 257, 257}, lower[3] = {0, 0, 0}, upper[3] = {256, 256, 256};
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceHistogram::MultiHistogramEven<4, 3>(temp, bytes, d_in.get(), bins, levels,
                                                            lower, upper, kItems);
    });
    std::vector<int> want[3];
    for (auto& each : want) each.resize(256);
    for (int i = 0; i < kItems * 4; ++i)
      if (i % 4 < 3) ++want[i % 4][in[i]];
    return red.read() == want[0] && green.read() == want[1] && blue.read() == want[2];
  });
  run_case("cub_for_each", [] {
    auto in = values<int>(kItems, 4);
    Device<int> d_data(in);
    MUST(cub::DeviceFor::ForEach(d_data.get(), d_data.get() + kItems, Doubler{}));
    for (int& value : in) value *= 2;
    return d_data.read() == in;
  });
  run_case("cub_for_bulk", [] {
    Device<long long> d_out(kItems);
    MUST(cub::DeviceFor::Bulk(kItems, WriteSquare{d_out}));
    std::vector<long long> want(kItems);
    for (int i = 0; i < kItems; ++i) want[i] = static_cast<long long>(i) * i;
    return d_out.read() == want;
  });
  run_case("cub_transform_two_inputs", [] {
    const auto a = values<float>(kItems + 5, 5), b = values<float>(kItems + 5, 6);
    Device<float> d_a(a), d_b(b), d_out(kItems + 5);
    MUST(cub::DeviceTransform::Transform(::cuda::std::make_tuple(d_a.get(), d_b.get()), d_out.get(),
                                         kItems + 5, Blend{}));
    std::vector<float> want(kItems + 5);
    for (size_t i = 0; i < want.size(); ++i) want[i] = Blend{}(a[i], b[i]);
    return d_out.read() == want;
  });
  run_case("cub_transform_one_input", [] {
    const auto a = signed_values<int>(kItems, 7);
    Device<int> d_a(a), d_out(kItems);
    MUST(cub::DeviceTransform::Transform(d_a.get(), d_out.get(), kItems, Halve{}));
    std::vector<int> want;
    for (int value : a) want.push_back(value / 2);
    return d_out.read() == want;
  });
  constexpr int kMoved = 40000;  // the last range is large enough for several blocks
  const std::vector<int> offsets = {0, 1, 9, 200, 1500, 1503, 6000, 6040, kMoved};
  const int ranges = static_cast<int>(offsets.size()) - 1;
  run_case("cub_copy_batched", [&] {
    const auto in = values<int>(kMoved, 8);
    Device<int> d_in(in), d_out(kMoved), d_offsets(offsets);
    const thrust::counting_iterator<int> index(0);
    const auto from = thrust::make_transform_iterator(index, RangeOf{d_offsets, d_in});
    const auto to = thrust::make_transform_iterator(index, RangeOf{d_offsets, d_out});
    const auto sizes = thrust::make_transform_iterator(index, SizeOf{d_offsets, 1});
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceCopy::Batched(temp, bytes, from, to, sizes, ranges);
    });
    return d_out.read() == in;
  });
  run_case("cub_memcpy_batched", [&] {
    const auto in = values<int>(kMoved, 9);
    Device<int> d_in(in), d_out(kMoved), d_offsets(offsets);
    const thrust::counting_iterator<int> index(0);
    const auto from = thrust::make_transform_iterator(index, RangeOf{d_offsets, d_in});
    const auto to = thrust::make_transform_iterator(index, RangeOf{d_offsets, d_out});
    const auto sizes = thrust::make_transform_iterator(index, SizeOf{d_offsets, 4});
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceMemcpy::Batched(temp, bytes, from, to, sizes, ranges);
    });
    return d_out.read() == in;
  });
  return finish();
}
