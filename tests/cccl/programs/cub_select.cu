// SPDX-License-Identifier: Apache-2.0
// Selections, partitions, runs and differences of CUB.
#include <cub/device/device_adjacent_difference.cuh>
#include <cub/device/device_partition.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_select.cuh>

#include "harness.cuh"

struct Below {
  int limit;
  __host__ __device__ bool operator()(int value) const { return value < limit; }
};
struct Odd {
  __host__ __device__ bool operator()(int value) const { return value % 2 != 0; }
};
struct Minus {
  template <class T>
  __host__ __device__ T operator()(const T& a, const T& b) const {
    return a - b;
  }
};

int main() {
  const auto in = values<int>(kItems, 1);
  const auto flags = values<char>(kItems, 2, 2);
  const auto sorted = [] {
    auto each = values<int>(kItems, 3, 700);
    std::sort(each.begin(), each.end());
    return each;
  }();

  run_case("cub_select_flagged", [&] {
    Device<int> d_in(in), d_out(kItems), d_count(1);
    Device<char> d_flags(flags);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSelect::Flagged(temp, bytes, d_in.get(), d_flags.get(), d_out.get(),
                                        d_count.get(), kItems);
    });
    std::vector<int> want;
    for (int i = 0; i < kItems; ++i)
      if (flags[i]) want.push_back(in[i]);
    return d_count.first() == static_cast<int>(want.size()) && d_out.read(want.size()) == want;
  });
  run_case("cub_select_if", [&] {
    Device<int> d_in(in), d_out(kItems), d_count(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSelect::If(temp, bytes, d_in.get(), d_out.get(), d_count.get(), kItems,
                                   Below{300});
    });
    std::vector<int> want;
    std::copy_if(in.begin(), in.end(), std::back_inserter(want), Below{300});
    return d_count.first() == static_cast<int>(want.size()) && d_out.read(want.size()) == want;
  });
  run_case("cub_select_flagged_if_in_place", [&] {
    Device<int> d_data(in), d_count(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSelect::If(temp, bytes, d_data.get(), d_count.get(), kItems, Odd{});
    });
    std::vector<int> want;
    std::copy_if(in.begin(), in.end(), std::back_inserter(want), Odd{});
    return d_count.first() == static_cast<int>(want.size()) && d_data.read(want.size()) == want;
  });
  run_case("cub_select_unique", [&] {
    Device<int> d_in(sorted), d_out(kItems), d_count(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSelect::Unique(temp, bytes, d_in.get(), d_out.get(), d_count.get(), kItems);
    });
    std::vector<int> want = sorted;
    want.erase(std::unique(want.begin(), want.end()), want.end());
    return d_count.first() == static_cast<int>(want.size()) && d_out.read(want.size()) == want;
  });
  run_case("cub_select_unique_by_key", [&] {
    Device<int> d_keys(sorted), d_out_keys(kItems), d_count(1);
    Device<double> d_in(values<double>(kItems, 4)), d_out(kItems);
    const auto all = d_in.read();
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceSelect::UniqueByKey(temp, bytes, d_keys.get(), d_in.get(), d_out_keys.get(),
                                            d_out.get(), d_count.get(), kItems);
    });
    std::vector<int> keys;
    std::vector<double> firsts;
    for (int i = 0; i < kItems; ++i)
      if (i == 0 || sorted[i] != sorted[i - 1]) {
        keys.push_back(sorted[i]);
        firsts.push_back(all[i]);
      }
    return d_count.first() == static_cast<int>(keys.size()) &&
           d_out_keys.read(keys.size()) == keys && d_out.read(keys.size()) == firsts;
  });
  run_case("cub_partition_flagged", [&] {
    Device<int> d_in(in), d_out(kItems), d_count(1);
    Device<char> d_flags(flags);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DevicePartition::Flagged(temp, bytes, d_in.get(), d_flags.get(), d_out.get(),
                                           d_count.get(), kItems);
    });
    std::vector<int> want, rest;  // what was not selected stands at the end, backwards
    for (int i = 0; i < kItems; ++i) (flags[i] ? want : rest).push_back(in[i]);
    const int count = static_cast<int>(want.size());
    want.insert(want.end(), rest.rbegin(), rest.rend());
    return d_count.first() == count && d_out.read() == want;
  });
  run_case("cub_partition_if_three_way", [&] {
    Device<int> d_in(in), d_low(kItems), d_odd(kItems), d_rest(kItems), d_counts(2);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DevicePartition::If(temp, bytes, d_in.get(), d_low.get(), d_odd.get(),
                                      d_rest.get(), d_counts.get(), kItems, Below{200}, Odd{});
    });
    std::vector<int> low, odd, rest;
    for (int value : in) (Below{200}(value) ? low : Odd{}(value) ? odd : rest).push_back(value);
    return d_counts.read() ==
               std::vector<int>{static_cast<int>(low.size()), static_cast<int>(odd.size())} &&
           d_low.read(low.size()) == low && d_odd.read(odd.size()) == odd &&
           d_rest.read(rest.size()) == rest;
  });
  run_case("cub_run_length_encode", [&] {
    Device<int> d_in(sorted), d_unique(kItems), d_lengths(kItems), d_runs(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceRunLengthEncode::Encode(temp, bytes, d_in.get(), d_unique.get(),
                                                d_lengths.get(), d_runs.get(), kItems);
    });
    std::vector<int> unique, lengths;
    for (int i = 0; i < kItems; ++i) {
      if (i == 0 || sorted[i] != sorted[i - 1]) {
        unique.push_back(sorted[i]);
        lengths.push_back(0);
      }
      ++lengths.back();
    }
    return d_runs.first() == static_cast<int>(unique.size()) &&
           d_unique.read(unique.size()) == unique && d_lengths.read(lengths.size()) == lengths;
  });
  run_case("cub_non_trivial_runs", [&] {
    const auto coins = values<int>(kItems, 5, 3);
    Device<int> d_in(coins), d_offsets(kItems), d_lengths(kItems), d_runs(1);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceRunLengthEncode::NonTrivialRuns(temp, bytes, d_in.get(), d_offsets.get(),
                                                        d_lengths.get(), d_runs.get(), kItems);
    });
    std::vector<int> offsets, lengths;
    for (int i = 0; i < kItems;) {
      int end = i + 1;
      while (end < kItems && coins[end] == coins[i]) ++end;
      if (end - i > 1) {
        offsets.push_back(i);
        lengths.push_back(end - i);
      }
      i = end;
    }
    return d_runs.first() == static_cast<int>(offsets.size()) &&
           d_offsets.read(offsets.size()) == offsets && d_lengths.read(lengths.size()) == lengths;
  });
  run_case("cub_subtract_left_copy", [&] {
    Device<int> d_in(in), d_out(kItems);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceAdjacentDifference::SubtractLeftCopy(temp, bytes, d_in.get(), d_out.get(),
                                                             kItems, Minus{});
    });
    std::vector<int> want(kItems);
    std::adjacent_difference(in.begin(), in.end(), want.begin());
    return d_out.read() == want;
  });
  run_case("cub_subtract_right_in_place", [&] {
    const auto data = signed_values<double>(kItems, 6);
    Device<double> d_data(data);
    with_temp([&](void* temp, size_t& bytes) {
      return cub::DeviceAdjacentDifference::SubtractRight(temp, bytes, d_data.get(), kItems,
                                                          Minus{});
    });
    std::vector<double> want = data;
    for (int i = 0; i + 1 < kItems; ++i) want[i] = data[i] - data[i + 1];
    return d_data.read() == want;
  });
  return finish();
}
