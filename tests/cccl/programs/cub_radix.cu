// SPDX-License-Identifier: Apache-2.0
// Radix sorts of CUB: one sweep, descending, pairs, small keys, segments.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>

#include "harness.cuh"

template <class K>
bool keys(std::vector<K> in, bool descending) {
  const int n = static_cast<int>(in.size());
  Device<K> d_in(in), d_out(n);
  with_temp([&](void* temp, size_t& bytes) {
    return descending
               ? cub::DeviceRadixSort::SortKeysDescending(temp, bytes, d_in.get(), d_out.get(), n)
               : cub::DeviceRadixSort::SortKeys(temp, bytes, d_in.get(), d_out.get(), n);
  });
  std::sort(in.begin(), in.end());
  if (descending) std::reverse(in.begin(), in.end());
  return d_out.read() == in;
}

template <class K, class V>
bool pairs(const std::vector<K>& in, bool descending) {
  const int n = static_cast<int>(in.size());
  std::vector<V> places(n);
  for (int i = 0; i < n; ++i) places[i] = static_cast<V>(i);
  Device<K> d_in(in), d_out(n);
  Device<V> d_in_values(places), d_out_values(n);
  with_temp([&](void* temp, size_t& bytes) {
    return descending
               ? cub::DeviceRadixSort::SortPairsDescending(temp, bytes, d_in.get(), d_out.get(),
                                                           d_in_values.get(), d_out_values.get(), n)
               : cub::DeviceRadixSort::SortPairs(temp, bytes, d_in.get(), d_out.get(),
                                                 d_in_values.get(), d_out_values.get(), n);
  });
  std::stable_sort(places.begin(), places.end(), [&](V a, V b) {
    const K x = in[static_cast<size_t>(a)], y = in[static_cast<size_t>(b)];
    return descending ? y < x : x < y;
  });
  std::vector<K> want(n);
  for (int i = 0; i < n; ++i) want[i] = in[static_cast<size_t>(places[i])];
  return d_out.read() == want && d_out_values.read() == places;
}

int main() {
  run_case("cub_radix_keys_u32", [] { return keys(values<unsigned>(kItems, 1, 1u << 31), false); });
  run_case("cub_radix_keys_descending_float",
           [] { return keys(signed_values<float>(kItems, 2, 50000), true); });
  run_case("cub_radix_keys_u8", [] { return keys(values<unsigned char>(kItems, 3, 256), false); });
  run_case("cub_radix_keys_small", [] { return keys(signed_values<int>(900, 4, 500), false); });
  run_case("cub_radix_pairs_int",
           [] { return pairs<int, unsigned>(signed_values<int>(kItems, 5, 4000), false); });
  run_case("cub_radix_pairs_descending_int64_double", [] {
    return pairs<long long, double>(signed_values<long long>(kItems / 2, 6, 2000), true);
  });
  run_case("cub_segmented_radix_keys", [] {
    auto in = signed_values<int>(kItems, 7, 100000);
    const std::vector<int> offsets = {0, 1, 40, 40, 700, 4000, 9000, kItems};
    const int segments = static_cast<int>(offsets.size()) - 1;
    Device<int> d_in(in), d_out(kItems), d_offsets(offsets);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSegmentedRadixSort::SortKeys(temp, bytes, d_in.get(), d_out.get(), kItems,
                                                     segments, d_offsets.get(),
                                                     d_offsets.get() + 1);
    });
    for (int s = 0; s < segments; ++s)
      std::sort(in.begin() + offsets[s], in.begin() + offsets[s + 1]);
    return d_out.read() == in;
  });
  return finish();
}
