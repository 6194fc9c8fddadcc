// SPDX-License-Identifier: Apache-2.0
// Reductions, scans, selections and movements of Thrust.
#include <thrust/adjacent_difference.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_ptr.h>
#include <thrust/extrema.h>
#include <thrust/for_each.h>
#include <thrust/gather.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/tabulate.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/transform_scan.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

#include "harness.cuh"

template <class T>
thrust::device_ptr<T> ptr(Device<T>& memory) {
  return thrust::device_pointer_cast(memory.get());
}

struct Square {
  __host__ __device__ double operator()(float value) const {
    return static_cast<double>(value) * value;
  }
};
struct Even {
  __host__ __device__ bool operator()(int value) const { return value % 2 == 0; }
};
struct Triangle {
  __host__ __device__ int operator()(int i) const { return i * (i + 1) / 2; }
};
struct Saxpy {
  float a;
  __host__ __device__ float operator()(float x, float y) const { return a * x + y; }
};
struct SumInto {
  template <class Tuple>
  __host__ __device__ void operator()(Tuple each) const {
    thrust::get<2>(each) = thrust::get<0>(each) + thrust::get<1>(each);
  }
};

int main() {
  const int n = kItems;
  const auto in = signed_values<int>(n, 1);
  const auto floats = signed_values<float>(n, 2);
  run_case("thrust_reduce_int64", [&] {
    const auto longs = signed_values<long long>(n, 3);
    Device<long long> d(longs);
    return thrust::reduce(ptr(d), ptr(d) + n, 5ll) ==
           std::accumulate(longs.begin(), longs.end(), 5ll);
  });
  run_case("thrust_transform_reduce", [&] {
    Device<float> d(floats);
    double want = 0;
    for (float value : floats) want += Square()(value);
    return thrust::transform_reduce(ptr(d), ptr(d) + n, Square(), 0.0, thrust::plus<double>()) ==
           want;
  });
  run_case("thrust_inner_product", [&] {
    Device<int> d_a(in), d_b(in);
    long want = 0;
    for (int value : in) want += value * value;
    return thrust::inner_product(ptr(d_a), ptr(d_a) + n, ptr(d_b), 0) == static_cast<int>(want);
  });
  run_case("thrust_inclusive_scan", [&] {
    Device<int> d_in(in), d_out(n);
    thrust::inclusive_scan(ptr(d_in), ptr(d_in) + n, ptr(d_out));
    std::vector<int> want(n);
    std::inclusive_scan(in.begin(), in.end(), want.begin());
    return d_out.read() == want;
  });
  run_case("thrust_transform_exclusive_scan", [&] {
    Device<float> d_in(floats);
    Device<double> d_out(n);
    thrust::transform_exclusive_scan(ptr(d_in), ptr(d_in) + n, ptr(d_out), Square(), 1.0,
                                     thrust::plus<double>());
    std::vector<double> want(n);
    double sum = 1;
    for (int i = 0; i < n; ++i) {
      want[i] = sum;
      sum += Square()(floats[i]);
    }
    return d_out.read() == want;
  });
  const auto runs = [] {
    auto each = values<int>(kItems, 4, 900);
    std::sort(each.begin(), each.end());
    return each;
  }();
  run_case("thrust_reduce_by_key", [&] {
    Device<int> d_keys(runs), d_in(in), d_out_keys(n), d_out(n);
    const auto ends =
        thrust::reduce_by_key(ptr(d_keys), ptr(d_keys) + n, ptr(d_in), ptr(d_out_keys), ptr(d_out));
    std::vector<int> keys, sums;
    for (int i = 0; i < n; ++i) {
      if (i == 0 || runs[i] != runs[i - 1]) {
        keys.push_back(runs[i]);
        sums.push_back(0);
      }
      sums.back() += in[i];
    }
    return ends.first - ptr(d_out_keys) == static_cast<long>(keys.size()) &&
           d_out_keys.read(keys.size()) == keys && d_out.read(keys.size()) == sums;
  });
  run_case("thrust_unique", [&] {
    Device<int> d(runs);
    const auto end = thrust::unique(ptr(d), ptr(d) + n);
    auto want = runs;
    want.erase(std::unique(want.begin(), want.end()), want.end());
    return end - ptr(d) == static_cast<long>(want.size()) && d.read(want.size()) == want;
  });
  run_case("thrust_unique_by_key", [&] {
    Device<int> d_keys(runs);
    Device<float> d_values(floats);
    const auto ends = thrust::unique_by_key(ptr(d_keys), ptr(d_keys) + n, ptr(d_values));
    std::vector<float> want;
    for (int i = 0; i < n; ++i)
      if (i == 0 || runs[i] != runs[i - 1]) want.push_back(floats[i]);
    return ends.second - ptr(d_values) == static_cast<long>(want.size()) &&
           d_values.read(want.size()) == want;
  });
  run_case("thrust_copy_if", [&] {
    Device<int> d_in(in), d_out(n);
    const auto end = thrust::copy_if(ptr(d_in), ptr(d_in) + n, ptr(d_out), Even());
    std::vector<int> want;
    std::copy_if(in.begin(), in.end(), std::back_inserter(want), Even());
    return end - ptr(d_out) == static_cast<long>(want.size()) && d_out.read(want.size()) == want;
  });
  run_case("thrust_remove_if", [&] {
    Device<int> d(in);
    const auto end = thrust::remove_if(ptr(d), ptr(d) + n, Even());
    auto want = in;
    want.erase(std::remove_if(want.begin(), want.end(), Even()), want.end());
    return end - ptr(d) == static_cast<long>(want.size()) && d.read(want.size()) == want;
  });
  run_case("thrust_stable_partition", [&] {
    Device<int> d(in);
    const auto middle = thrust::stable_partition(ptr(d), ptr(d) + n, Even());
    auto want = in;
    const auto at = std::stable_partition(want.begin(), want.end(), Even());
    return middle - ptr(d) == at - want.begin() && d.read() == want;
  });
  run_case("thrust_gather_scatter", [&] {
    std::vector<int> map(n);
    for (int i = 0; i < n; ++i) map[i] = static_cast<int>((i * 7919ll + 13) % n);
    Device<int> d_map(map), d_in(in), d_gathered(n), d_scattered(n);
    thrust::gather(ptr(d_map), ptr(d_map) + n, ptr(d_in), ptr(d_gathered));
    thrust::scatter(ptr(d_in), ptr(d_in) + n, ptr(d_map), ptr(d_scattered));
    std::vector<int> gathered(n), scattered(n);
    for (int i = 0; i < n; ++i) {
      gathered[i] = in[map[i]];
      scattered[map[i]] = in[i];
    }
    return d_gathered.read() == gathered && d_scattered.read() == scattered;
  });
  run_case("thrust_transform_saxpy", [&] {
    Device<float> d_x(floats), d_y(floats);
    thrust::transform(ptr(d_x), ptr(d_x) + n, ptr(d_y), ptr(d_y), Saxpy{3});
    std::vector<float> want;
    for (float value : floats) want.push_back(Saxpy{3}(value, value));
    return d_y.read() == want;
  });
  run_case("thrust_zip_for_each", [&] {
    Device<int> d_a(in), d_b(runs), d_c(n);
    const auto begin = thrust::make_zip_iterator(thrust::make_tuple(ptr(d_a), ptr(d_b), ptr(d_c)));
    thrust::for_each(begin, begin + n, SumInto());
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = in[i] + runs[i];
    return d_c.read() == want;
  });
  run_case("thrust_minmax_element", [&] {
    Device<float> d(floats);
    const auto got = thrust::minmax_element(ptr(d), ptr(d) + n);
    const auto least = std::min_element(floats.begin(), floats.end()) - floats.begin();
    const auto most = *std::max_element(floats.begin(), floats.end());
    return got.first - ptr(d) == least && floats[got.second - ptr(d)] == most;
  });
  run_case("thrust_count_tabulate_sequence", [&] {
    Device<int> d(n);
    thrust::tabulate(ptr(d), ptr(d) + n, Triangle());
    const auto even = thrust::count_if(ptr(d), ptr(d) + n, Even());
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = Triangle()(i);
    if (d.read() != want || even != std::count_if(want.begin(), want.end(), Even())) return false;
    thrust::sequence(ptr(d), ptr(d) + n, 10, 3);
    for (int i = 0; i < n; ++i) want[i] = 10 + 3 * i;
    return d.read() == want;
  });
  run_case("thrust_adjacent_difference", [&] {
    Device<int> d_in(in), d_out(n);
    thrust::adjacent_difference(ptr(d_in), ptr(d_in) + n, ptr(d_out));
    std::vector<int> want(n);
    std::adjacent_difference(in.begin(), in.end(), want.begin());
    return d_out.read() == want;
  });
  return finish();
}
