// SPDX-License-Identifier: Apache-2.0
// Scans of CUB: the decoupled look-back in its forms (one word, two words, by key).
#include <cub/device/device_scan.cuh>

#include "harness.cuh"

struct Greater {
  template <class T>
  __host__ __device__ T operator()(const T& a, const T& b) const {
    return a < b ? b : a;
  }
};
// Composition of x -> scale * x + shift: associative, not commutative.
struct Affine {
  unsigned scale, shift;
  __host__ __device__ bool operator==(const Affine& o) const {
    return scale == o.scale && shift == o.shift;
  }
};
struct Compose {
  __host__ __device__ Affine operator()(const Affine& a, const Affine& b) const {
    return {a.scale * b.scale, b.scale * a.shift + b.shift};
  }
};

int main() {
  run_case("cub_exclusive_sum_int", [] {
    const auto in = signed_values<int>(kItems, 1);
    Device<int> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::ExclusiveSum(temp, bytes, d_in.get(), d_out.get(), kItems);
    });
    std::vector<int> want(kItems);
    std::exclusive_scan(in.begin(), in.end(), want.begin(), 0);
    return d_out.read() == want;
  });
  run_case("cub_inclusive_sum_int64", [] {
    const auto in = signed_values<long long>(kItems, 2);
    Device<long long> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::InclusiveSum(temp, bytes, d_in.get(), d_out.get(), kItems);
    });
    std::vector<long long> want(kItems);
    std::inclusive_scan(in.begin(), in.end(), want.begin());
    return d_out.read() == want;
  });
  run_case("cub_inclusive_max_float", [] {
    const auto in = signed_values<float>(kItems, 3, 1 << 20);
    Device<float> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::InclusiveScan(temp, bytes, d_in.get(), d_out.get(), Greater{},
                                            kItems);
    });
    std::vector<float> want(kItems);
    std::inclusive_scan(in.begin(), in.end(), want.begin(), Greater{});
    return d_out.read() == want;
  });
  run_case("cub_exclusive_scan_double", [] {
    const auto in = signed_values<double>(kItems, 4);
    Device<double> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::ExclusiveScan(temp, bytes, d_in.get(), d_out.get(),
                                            ::cuda::std::plus<>{}, 5.0, kItems);
    });
    std::vector<double> want(kItems);
    std::exclusive_scan(in.begin(), in.end(), want.begin(), 5.0);
    return d_out.read() == want;
  });
  run_case("cub_inclusive_scan_affine", [] {
    std::vector<Affine> in(kItems);
    for (int i = 0; i < kItems; ++i) in[i] = {static_cast<unsigned>(i % 5 + 1), i % 7u};
    Device<Affine> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::InclusiveScan(temp, bytes, d_in.get(), d_out.get(), Compose{},
                                            kItems);
    });
    std::vector<Affine> want(kItems);
    std::inclusive_scan(in.begin(), in.end(), want.begin(), Compose{});
    return d_out.read() == want;
  });
  run_case("cub_inclusive_scan_triple", [] {
    const auto in = triples(kItems / 2, 5, 100);
    const int n = static_cast<int>(in.size());
    Device<Triple> d_in(in), d_out(n);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::InclusiveScan(temp, bytes, d_in.get(), d_out.get(), TripleAdd{}, n);
    });
    std::vector<Triple> want(n);
    std::inclusive_scan(in.begin(), in.end(), want.begin(), TripleAdd{});
    return d_out.read() == want;
  });
  const auto keys = [] {
    auto each = values<int>(kItems, 6, 200);
    std::sort(each.begin(), each.end());
    return each;
  }();
  run_case("cub_inclusive_sum_by_key", [&] {
    const auto in = signed_values<int>(kItems, 7);
    Device<int> d_keys(keys), d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::InclusiveSumByKey(temp, bytes, d_keys.get(), d_in.get(), d_out.get(),
                                                kItems);
    });
    std::vector<int> want(kItems);
    for (int i = 0; i < kItems; ++i)
      want[i] = in[i] + (i > 0 && keys[i] == keys[i - 1] ? want[i - 1] : 0);
    return d_out.read() == want;
  });
  run_case("cub_exclusive_scan_by_key_int64", [&] {
    const auto in = values<long long>(kItems, 8);
    Device<int> d_keys(keys);
    Device<long long> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceScan::ExclusiveScanByKey(temp, bytes, d_keys.get(), d_in.get(), d_out.get(),
                                                 Greater{}, 0ll, kItems);
    });
    std::vector<long long> want(kItems);
    for (int i = 0; i < kItems; ++i)
      want[i] = i > 0 && keys[i] == keys[i - 1] ? std::max(want[i - 1], in[i - 1]) : 0;
    return d_out.read() == want;
  });
  return finish();
}
