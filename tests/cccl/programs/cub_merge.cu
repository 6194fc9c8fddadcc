// SPDX-License-Identifier: Apache-2.0
// Merge sorts, merges and segmented sorts of CUB.
#include <cub/device/device_merge.cuh>
#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_segmented_sort.cuh>

#include "harness.cuh"

struct Less {
  template <class T>
  __host__ __device__ bool operator()(const T& a, const T& b) const {
    return a < b;
  }
};

int main() {
  run_case("cub_merge_sort_keys_struct", [] {
    auto in = triples(kItems / 2, 1, 3000);
    Device<Triple> d_data(in);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceMergeSort::StableSortKeys(temp, bytes, d_data.get(), in.size(),
                                                  TripleLess{});
    });
    std::stable_sort(in.begin(), in.end(), TripleLess{});
    return d_data.read() == in;
  });
  run_case("cub_merge_sort_pairs", [] {
    const auto keys = signed_values<int>(kItems, 2, 2000);
    std::vector<int> places(kItems);
    std::iota(places.begin(), places.end(), 0);
    Device<int> d_keys(keys), d_values(places);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceMergeSort::StableSortPairs(temp, bytes, d_keys.get(), d_values.get(),
                                                   kItems, Less{});
    });
    std::stable_sort(places.begin(), places.end(), [&](int a, int b) { return keys[a] < keys[b]; });
    std::vector<int> want;
    for (int place : places) want.push_back(keys[place]);
    return d_keys.read() == want && d_values.read() == places;
  });
  run_case("cub_merge_sort_keys_copy_double", [] {
    auto in = signed_values<double>(kItems, 3, 100000);
    Device<double> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceMergeSort::SortKeysCopy(temp, bytes, d_in.get(), d_out.get(), kItems,
                                                Less{});
    });
    std::sort(in.begin(), in.end());
    return d_out.read() == in;
  });
  run_case("cub_merge_keys", [] {
    auto a = values<int>(kItems, 4), b = values<int>(kItems / 3, 5);
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    Device<int> d_a(a), d_b(b), d_out(a.size() + b.size());
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceMerge::MergeKeys(temp, bytes, d_a.get(), static_cast<int>(a.size()),
                                         d_b.get(), static_cast<int>(b.size()), d_out.get(),
                                         Less{});
    });
    std::vector<int> want;
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(want));
    return d_out.read() == want;
  });
  run_case("cub_merge_pairs", [] {
    auto a = values<short>(kItems / 2, 6), b = values<short>(kItems / 2, 7);
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    std::vector<double> x(a.size()), y(b.size());
    std::iota(x.begin(), x.end(), 0.0);
    std::iota(y.begin(), y.end(), 100000.0);
    Device<short> d_a(a), d_b(b), d_keys(a.size() + b.size());
    Device<double> d_x(x), d_y(y), d_values(a.size() + b.size());
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceMerge::MergePairs(
          temp, bytes, d_a.get(), d_x.get(), static_cast<int>(a.size()), d_b.get(), d_y.get(),
          static_cast<int>(b.size()), d_keys.get(), d_values.get(), Less{});
    });
    std::vector<short> keys;
    std::vector<double> places;
    for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
      const bool left = j == b.size() || (i < a.size() && !(b[j] < a[i]));
      keys.push_back(left ? a[i] : b[j]);
      places.push_back(left ? x[i++] : y[j++]);
    }
    return d_keys.read() == keys && d_values.read() == places;
  });
  const std::vector<int> offsets = {0, 3, 3, 50, 400, 2500, 9000, kItems};
  const int segments = static_cast<int>(offsets.size()) - 1;
  run_case("cub_segmented_sort_keys", [&] {
    auto in = signed_values<int>(kItems, 8, 100000);
    Device<int> d_in(in), d_out(kItems), d_offsets(offsets);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSegmentedSort::SortKeys(temp, bytes, d_in.get(), d_out.get(), kItems,
                                                segments, d_offsets.get(), d_offsets.get() + 1);
    });
    for (int s = 0; s < segments; ++s)
      std::sort(in.begin() + offsets[s], in.begin() + offsets[s + 1]);
    return d_out.read() == in;
  });
  run_case("cub_segmented_sort_pairs_stable", [&] {
    const auto keys = signed_values<float>(kItems, 9, 500);
    std::vector<int> places(kItems);
    std::iota(places.begin(), places.end(), 0);
    Device<float> d_in(keys), d_out(kItems);
    Device<int> d_in_values(places), d_out_values(kItems), d_offsets(offsets);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSegmentedSort::StableSortPairs(
          temp, bytes, d_in.get(), d_out.get(), d_in_values.get(), d_out_values.get(), kItems,
          segments, d_offsets.get(), d_offsets.get() + 1);
    });
    for (int s = 0; s < segments; ++s)
      std::stable_sort(places.begin() + offsets[s], places.begin() + offsets[s + 1],
                       [&](int a, int b) { return keys[a] < keys[b]; });
    std::vector<float> want;
    for (int place : places) want.push_back(keys[place]);
    return d_out.read() == want && d_out_values.read() == places;
  });
  return finish();
}
