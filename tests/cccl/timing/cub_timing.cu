// SPDX-License-Identifier: Apache-2.0
// CUB at sizes at which a kernel takes an H200 100 us and more, for tests/bench/preempt. Recorded
// without being run (../record/record.sh --timing): inputs are made when a trace is replayed, and
// original and clone are compared there.
#include <cub/cub.cuh>

#include "../programs/harness.cuh"

// Of the recording runtime: what an input holds. Word i of the memory is a random number & mask, or
// i * multiplier / divisor.
extern "C" void sluice_record_noise(void* memory, std::uint32_t mask);
extern "C" void sluice_record_ramp(void* memory, std::uint64_t multiplier, std::uint64_t divisor);

constexpr int kMany = 1 << 27, kHalf = 1 << 26, kQuarter = 1 << 25;

template <class T>
struct Noise : Device<T> {
  explicit Noise(std::size_t count, std::uint32_t mask = 0xffffffffu) : Device<T>(count) {
    sluice_record_noise(this->get(), mask);
  }
};
template <class T>
struct Ramp : Device<T> {
  Ramp(std::size_t count, std::uint64_t multiplier, std::uint64_t divisor) : Device<T>(count) {
    sluice_record_ramp(this->get(), multiplier, divisor);
  }
};
struct IsSmall {
  __device__ bool operator()(int v) const { return (v & 0xff) < 0x60; }
};
struct Less {
  template <class T>
  __device__ bool operator()(const T& a, const T& b) const {
    return a < b;
  }
};
struct Scale {
  __device__ float operator()(float x, float y) const { return 2.5f * x + y; }
};
struct Polynomial {
  __device__ float operator()(float x) const {
    float y = 0.3f;
    for (int i = 0; i < 24; ++i) y = y * x + 0.01f * static_cast<float>(i);
    return y;
  }
};
struct Store {
  const int* in;
  int* out;
  __device__ void operator()(int i) const { out[i] = in[i] * 3 + in[i ^ 1]; }
};
// Each algorithm is called once for its temporary memory's size and once to run.
template <class F>
void timed_case(const char* name, F body) {
  run_case(name, [&] {
    body();
    return true;
  });
}

int main() {
  timed_case("reduce_sum_int", [] {
    Noise<int> in(kMany);
    Device<int> out(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceReduce::Sum(t, b, in.get(), out.get(), kMany);
    });
  });
  timed_case("reduce_max_double", [] {
    Noise<double> in(kHalf, 0x3fffffffu);
    Device<double> out(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceReduce::Max(t, b, in.get(), out.get(), kHalf);
    });
  });
  timed_case("transform_reduce_float", [] {
    Noise<float> in(kMany, 0x3fffffffu);
    Device<float> out(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceReduce::TransformReduce(t, b, in.get(), out.get(), kMany,
                                                cuda::std::plus<>{}, Polynomial{}, 0.0f);
    });
  });
  timed_case("segmented_reduce_int", [] {
    constexpr int kSegments = kMany / 512;
    Noise<int> in(kMany);
    Ramp<int> offsets(kSegments + 1, 512, 1);
    Device<int> out(kSegments);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceSegmentedReduce::Sum(t, b, in.get(), out.get(), kSegments, offsets.get(),
                                             offsets.get() + 1);
    });
  });
  timed_case("reduce_by_key_int", [] {
    Ramp<int> keys(kHalf, 1, 17);
    Noise<int> values(kHalf);
    Device<int> unique(kHalf), sums(kHalf), count(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceReduce::ReduceByKey(t, b, keys.get(), unique.get(), values.get(),
                                            sums.get(), count.get(), cuda::std::plus<>{}, kHalf);
    });
  });
  timed_case("exclusive_sum_int", [] {
    Noise<int> in(kMany);
    Device<int> out(kMany);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceScan::ExclusiveSum(t, b, in.get(), out.get(), kMany);
    });
  });
  timed_case("inclusive_sum_int64", [] {
    Noise<long long> in(kHalf);
    Device<long long> out(kHalf);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceScan::InclusiveSum(t, b, in.get(), out.get(), kHalf);
    });
  });
  timed_case("select_if_int", [] {
    Noise<int> in(kMany);
    Device<int> out(kMany), count(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceSelect::If(t, b, in.get(), out.get(), count.get(), kMany, IsSmall{});
    });
  });
  timed_case("select_flagged_int", [] {
    Noise<int> in(kMany);
    Noise<unsigned char> flags(kMany, 0x01010101u);
    Device<int> out(kMany), count(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceSelect::Flagged(t, b, in.get(), flags.get(), out.get(), count.get(), kMany);
    });
  });
  timed_case("select_unique_int", [] {
    Ramp<int> in(kMany, 1, 3);
    Device<int> out(kMany), count(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceSelect::Unique(t, b, in.get(), out.get(), count.get(), kMany);
    });
  });
  timed_case("partition_if_int", [] {
    Noise<int> in(kMany);
    Device<int> out(kMany), count(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DevicePartition::If(t, b, in.get(), out.get(), count.get(), kMany, IsSmall{});
    });
  });
  timed_case("run_length_encode_int", [] {
    Ramp<int> in(kHalf, 1, 7);
    Device<int> unique(kHalf), lengths(kHalf), count(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceRunLengthEncode::Encode(t, b, in.get(), unique.get(), lengths.get(),
                                                count.get(), kHalf);
    });
  });
  timed_case("radix_sort_keys_u32", [] {
    Noise<unsigned> in(kHalf);
    Device<unsigned> out(kHalf);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceRadixSort::SortKeys(t, b, in.get(), out.get(), kHalf);
    });
  });
  timed_case("radix_sort_pairs_u32", [] {
    Noise<unsigned> keys(kHalf), values(kHalf);
    Device<unsigned> keys_out(kHalf), values_out(kHalf);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceRadixSort::SortPairs(t, b, keys.get(), keys_out.get(), values.get(),
                                             values_out.get(), kHalf);
    });
  });
  timed_case("radix_sort_keys_u64", [] {
    Noise<unsigned long long> in(kQuarter);
    Device<unsigned long long> out(kQuarter);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceRadixSort::SortKeys(t, b, in.get(), out.get(), kQuarter);
    });
  });
  timed_case("merge_sort_keys_int", [] {
    Noise<int> data(kHalf);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceMergeSort::SortKeys(t, b, data.get(), kHalf, Less{});
    });
  });
  timed_case("merge_keys_int", [] {
    Ramp<int> a(kHalf, 3, 2), c(kHalf, 1, 1);
    Device<int> out(2 * std::size_t{kHalf});
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceMerge::MergeKeys(t, b, a.get(), kHalf, c.get(), kHalf, out.get(), Less{});
    });
  });
  timed_case("histogram_even_u8", [] {
    Noise<unsigned char> in(std::size_t{kMany} * 4);
    Device<int> bins(256);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceHistogram::HistogramEven(t, b, in.get(), bins.get(), 257, 0, 256,
                                                 kMany * 4ll);
    });
  });
  timed_case("histogram_even_float", [] {
    Noise<float> in(kMany, 0x3fffffffu);
    Device<int> bins(64);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceHistogram::HistogramEven(t, b, in.get(), bins.get(), 65, 0.0f, 2.0f, kMany);
    });
  });
  timed_case("transform_float", [] {
    Noise<float> x(kMany, 0x3fffffffu), y(kMany, 0x3fffffffu);
    Device<float> out(kMany);
    MUST(cub::DeviceTransform::Transform(cuda::std::make_tuple(x.get(), y.get()), out.get(), kMany,
                                         Scale{}));
  });
  timed_case("for_each_int", [] {
    Noise<int> in(kMany);
    Device<int> out(kMany);
    MUST(cub::DeviceFor::Bulk(kMany, Store{in.get(), out.get()}));
  });
  timed_case("adjacent_difference_int", [] {
    Noise<int> in(kMany);
    Device<int> out(kMany);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceAdjacentDifference::SubtractLeftCopy(t, b, in.get(), out.get(), kMany);
    });
  });
  // The same kernels over more items: a launch takes an H200 1 ms and more, so that it can be
  // evicted in mid-work many times (preempt_bench equality). Some gigabytes each.
  timed_case("reduce_sum_int_long", [] {
    constexpr int kItems = 5 << 28;
    Noise<int> in(kItems);
    Device<int> out(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceReduce::Sum(t, b, in.get(), out.get(), kItems);
    });
  });
  timed_case("reduce_max_double_long", [] {
    constexpr int kItems = 5 << 27;
    Noise<double> in(kItems, 0x3fffffffu);
    Device<double> out(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceReduce::Max(t, b, in.get(), out.get(), kItems);
    });
  });
  timed_case("transform_reduce_float_long", [] {
    constexpr int kItems = 1 << 30;
    Noise<float> in(kItems, 0x3fffffffu);
    Device<float> out(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceReduce::TransformReduce(t, b, in.get(), out.get(), kItems,
                                                cuda::std::plus<>{}, Polynomial{}, 0.0f);
    });
  });
  timed_case("segmented_reduce_int_long", [] {
    constexpr int kItems = 3 << 27, kSegments = kItems / 512;
    Noise<int> in(kItems);
    Ramp<int> offsets(kSegments + 1, 512, 1);
    Device<int> out(kSegments);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceSegmentedReduce::Sum(t, b, in.get(), out.get(), kSegments, offsets.get(),
                                             offsets.get() + 1);
    });
  });
  timed_case("select_unique_int_long", [] {
    constexpr int kItems = 1 << 29;
    Ramp<int> in(kItems, 1, 3);
    Device<int> out(kItems), count(1);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceSelect::Unique(t, b, in.get(), out.get(), count.get(), kItems);
    });
  });
  timed_case("radix_sort_keys_u64_long", [] {
    constexpr int kItems = 5 << 25;
    Noise<unsigned long long> in(kItems);
    Device<unsigned long long> out(kItems);
    with_temp([&](void* t, size_t& b) {
      return cub::DeviceRadixSort::SortKeys(t, b, in.get(), out.get(), kItems);
    });
  });
  timed_case("transform_float_long", [] {
    constexpr int kItems = 1 << 29;
    Noise<float> x(kItems, 0x3fffffffu), y(kItems, 0x3fffffffu);
    Device<float> out(kItems);
    MUST(cub::DeviceTransform::Transform(cuda::std::make_tuple(x.get(), y.get()), out.get(), kItems,
                                         Scale{}));
  });
  return finish();
}
