// SPDX-License-Identifier: Apache-2.0
// Reductions of CUB: whole, segmented, by key.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>

#include "harness.cuh"

struct Square {
  __host__ __device__ long long operator()(int value) const {
    return static_cast<long long>(value) * value;
  }
};
struct Least {
  template <class T>
  __host__ __device__ T operator()(const T& a, const T& b) const {
    return b < a ? b : a;
  }
};

template <class T>
bool sum(std::uint32_t seed) {
  const auto in = signed_values<T>(kItems, seed);
  Device<T> d_in(in), d_out(1);
  with_temp([&](void* temp, size_t& bytes) {
    return cub::DeviceReduce::Sum(temp, bytes, d_in.get(), d_out.get(), kItems);
  });
  return d_out.first() == std::accumulate(in.begin(), in.end(), T{});
}

int main() {
  run_case("cub_reduce_sum_int", [] { return sum<int>(1); });
  run_case("cub_reduce_sum_double", [] { return sum<double>(2); });
  run_case("cub_reduce_max_float", [] {
    const auto in = signed_values<float>(kItems, 3, 1 << 20);
    Device<float> d_in(in), d_out(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceReduce::Max(temp, bytes, d_in.get(), d_out.get(), kItems);
    });
    return d_out.first() == *std::max_element(in.begin(), in.end());
  });
  run_case("cub_reduce_min_short", [] {
    const auto in = signed_values<short>(kItems, 4, 30000);
    Device<short> d_in(in), d_out(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceReduce::Reduce(temp, bytes, d_in.get(), d_out.get(), kItems, Least{},
                                       static_cast<short>(32767));
    });
    return d_out.first() == *std::min_element(in.begin(), in.end());
  });
  run_case("cub_reduce_struct", [] {
    const auto in = triples(kItems, 5, 100);
    Device<Triple> d_in(in), d_out(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceReduce::Reduce(temp, bytes, d_in.get(), d_out.get(), kItems, TripleAdd{},
                                       Triple{0, 0, 0});
    });
    Triple want{0, 0, 0};
    for (const Triple& each : in) want = TripleAdd{}(want, each);
    const Triple got = d_out.first();
    return got.key == want.key && got.weight == want.weight;
  });
  run_case("cub_transform_reduce", [] {
    const auto in = signed_values<int>(kItems, 6);
    Device<int> d_in(in);
    Device<long long> d_out(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceReduce::TransformReduce(temp, bytes, d_in.get(), d_out.get(), kItems,
                                                ::cuda::std::plus<>{}, Square{}, 0ll);
    });
    long long want = 0;
    for (int value : in) want += Square{}(value);
    return d_out.first() == want;
  });
  run_case("cub_reduce_by_key", [] {
    const auto keys = [] {
      auto each = values<int>(kItems, 7, 400);
      std::sort(each.begin(), each.end());
      return each;
    }();
    const auto in = values<int>(kItems, 8);
    Device<int> d_keys(keys), d_in(in), d_unique(kItems), d_sums(kItems), d_runs(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceReduce::ReduceByKey(temp, bytes, d_keys.get(), d_unique.get(), d_in.get(),
                                            d_sums.get(), d_runs.get(), ::cuda::std::plus<>{},
                                            kItems);
    });
    std::vector<int> unique, sums;
    for (int i = 0; i < kItems; ++i) {
      if (i == 0 || keys[i] != keys[i - 1]) {
        unique.push_back(keys[i]);
        sums.push_back(0);
      }
      sums.back() += in[i];
    }
    return d_runs.first() == static_cast<int>(unique.size()) &&
           d_unique.read(unique.size()) == unique && d_sums.read(sums.size()) == sums;
  });
  run_case("cub_segmented_reduce_int64", [] {
    const auto in = signed_values<long long>(kItems, 9);
    std::vector<int> offsets = {0};
    while (offsets.back() < kItems)
      offsets.push_back(std::min(kItems, offsets.back() + 1 + (offsets.back() * 7) % 900));
    const int segments = static_cast<int>(offsets.size()) - 1;
    Device<long long> d_in(in), d_out(segments);
    Device<int> d_offsets(offsets);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSegmentedReduce::Sum(temp, bytes, d_in.get(), d_out.get(), segments,
                                             d_offsets.get(), d_offsets.get() + 1);
    });
    std::vector<long long> want;
    for (int s = 0; s < segments; ++s)
      want.push_back(std::accumulate(in.begin() + offsets[s], in.begin() + offsets[s + 1], 0ll));
    return d_out.read() == want;
  });
  return finish();
}
