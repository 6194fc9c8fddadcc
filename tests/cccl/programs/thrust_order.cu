// SPDX-License-Identifier: Apache-2.0
// Sorting, searching, merging and set algorithms of Thrust.
#include <thrust/binary_search.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/merge.h>
#include <thrust/reverse.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>

#include "harness.cuh"

template <class T>
thrust::device_ptr<T> ptr(Device<T>& memory) {
  return thrust::device_pointer_cast(memory.get());
}

struct ByTens {
  __host__ __device__ bool operator()(int a, int b) const { return a / 10 < b / 10; }
};

int main() {
  const int n = kItems;
  run_case("thrust_sort_greater", [&] {
    auto in = signed_values<int>(n, 1, 1 << 20);
    Device<int> d(in);
    thrust::sort(ptr(d), ptr(d) + n, thrust::greater<int>());
    std::sort(in.begin(), in.end(), std::greater<int>());
    return d.read() == in;
  });
  run_case("thrust_stable_sort_comparator", [&] {
    auto in = values<int>(n, 2, 3000);
    Device<int> d(in);
    thrust::stable_sort(ptr(d), ptr(d) + n, ByTens());
    std::stable_sort(in.begin(), in.end(), ByTens());
    return d.read() == in;
  });
  run_case("thrust_sort_by_key_int64", [&] {
    const auto keys = signed_values<long long>(n, 3, 1 << 30);
    std::vector<int> places(n);
    std::iota(places.begin(), places.end(), 0);
    Device<long long> d_keys(keys);
    Device<int> d_values(places);
    thrust::stable_sort_by_key(ptr(d_keys), ptr(d_keys) + n, ptr(d_values));
    std::stable_sort(places.begin(), places.end(), [&](int a, int b) { return keys[a] < keys[b]; });
    return d_values.read() == places && std::is_sorted(keys.begin(), keys.begin());
  });
  auto a = values<int>(n, 4, 9000), b = values<int>(n / 2, 5, 9000);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  run_case("thrust_merge", [&] {
    Device<int> d_a(a), d_b(b), d_out(a.size() + b.size());
    thrust::merge(ptr(d_a), ptr(d_a) + a.size(), ptr(d_b), ptr(d_b) + b.size(), ptr(d_out));
    std::vector<int> want;
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(want));
    return d_out.read() == want;
  });
  const auto set_case = [&](const char* name, auto device, auto host) {
    run_case(name, [&] {
      Device<int> d_a(a), d_b(b), d_out(a.size() + b.size());
      const auto end =
          device(ptr(d_a), ptr(d_a) + a.size(), ptr(d_b), ptr(d_b) + b.size(), ptr(d_out));
      std::vector<int> want;
      host(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(want));
      return end - ptr(d_out) == static_cast<long>(want.size()) && d_out.read(want.size()) == want;
    });
  };
  set_case(
      "thrust_set_intersection", [](auto... args) { return thrust::set_intersection(args...); },
      [](auto... args) { return std::set_intersection(args...); });
  set_case(
      "thrust_set_union", [](auto... args) { return thrust::set_union(args...); },
      [](auto... args) { return std::set_union(args...); });
  set_case(
      "thrust_set_difference", [](auto... args) { return thrust::set_difference(args...); },
      [](auto... args) { return std::set_difference(args...); });
  run_case("thrust_lower_bound", [&] {
    const auto needles = signed_values<int>(3000, 6, 20000);
    Device<int> d_a(a), d_needles(needles), d_out(needles.size());
    thrust::lower_bound(ptr(d_a), ptr(d_a) + n, ptr(d_needles), ptr(d_needles) + needles.size(),
                        ptr(d_out));
    std::vector<int> want;
    for (int needle : needles)
      want.push_back(static_cast<int>(std::lower_bound(a.begin(), a.end(), needle) - a.begin()));
    return d_out.read() == want;
  });
  run_case("thrust_reverse_double", [&] {
    auto in = values<double>(n, 7);
    Device<double> d(in);
    thrust::reverse(ptr(d), ptr(d) + n);
    std::reverse(in.begin(), in.end());
    return d.read() == in;
  });
  return finish();
}
