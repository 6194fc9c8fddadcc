// SPDX-License-Identifier: Apache-2.0
// CUB's collectives of blocks and warps in kernels of our own; one kernel each.
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

#include "harness.cuh"

constexpr int kThreads = 128;
constexpr int kPer = 5;
constexpr int kTile = kThreads * kPer;
constexpr int kBlocks = 9;
constexpr int kCount = kTile * kBlocks;

template <cub::BlockReduceAlgorithm Algorithm, class T>
__global__ void block_reduce(const T* in, T* out) {
  using Reduce = cub::BlockReduce<T, kThreads, Algorithm>;
  __shared__ typename Reduce::TempStorage temp;
  T items[kPer];
  for (int i = 0; i < kPer; ++i) items[i] = in[blockIdx.x * kTile + i * kThreads + threadIdx.x];
  const T sum = Reduce(temp).Sum(items);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

template <cub::BlockScanAlgorithm Algorithm, class T>
__global__ void block_scan(const T* in, T* out) {
  using Load = cub::BlockLoad<T, kThreads, kPer, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<T, kThreads, kPer, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<T, kThreads, Algorithm>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
  } temp;
  T items[kPer];
  Load(temp.load).Load(in + blockIdx.x * kTile, items);
  __syncthreads();
  Scan(temp.scan).ExclusiveSum(items, items);
  __syncthreads();
  Store(temp.store).Store(out + blockIdx.x * kTile, items);
}

template <class K, bool Descending>
__global__ void block_radix_sort(const K* in, K* out, int* out_places) {
  using Load = cub::BlockLoad<K, kThreads, kPer, cub::BLOCK_LOAD_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<K, kThreads, kPer, int>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Sort::TempStorage sort;
  } temp;
  K keys[kPer];
  int places[kPer];
  Load(temp.load).Load(in + blockIdx.x * kTile, keys);
  for (int i = 0; i < kPer; ++i) places[i] = threadIdx.x * kPer + i;
  __syncthreads();
  if (Descending)
    Sort(temp.sort).SortDescendingBlockedToStriped(keys, places);
  else
    Sort(temp.sort).SortBlockedToStriped(keys, places);
  cub::StoreDirectStriped<kThreads>(threadIdx.x, out + blockIdx.x * kTile, keys);
  cub::StoreDirectStriped<kThreads>(threadIdx.x, out_places + blockIdx.x * kTile, places);
}

__global__ void block_merge_sort(const Triple* in, Triple* out) {
  using Sort = cub::BlockMergeSort<Triple, kThreads, kPer>;
  __shared__ typename Sort::TempStorage temp;
  Triple items[kPer];
  cub::LoadDirectBlocked(threadIdx.x, in + blockIdx.x * kTile, items);
  Sort(temp).StableSort(items, TripleLess{});
  cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * kTile, items);
}

template <cub::BlockHistogramAlgorithm Algorithm>
__global__ void block_histogram(const unsigned char* in, unsigned* out) {
  using Histogram = cub::BlockHistogram<unsigned char, kThreads, kPer, 256, Algorithm>;
  __shared__ typename Histogram::TempStorage temp;
  __shared__ unsigned bins[256];
  unsigned char items[kPer];
  cub::LoadDirectStriped<kThreads>(threadIdx.x, in + blockIdx.x * kTile, items);
  Histogram(temp).Histogram(items, bins);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += kThreads) atomicAdd(&out[bin], bins[bin]);
}

// Vector loads, an exchange, a shuffle, flags and differences in one pipeline.
__global__ void block_pipeline(const int* in, int* out) {
  using Load = cub::BlockLoad<int, kThreads, 4, cub::BLOCK_LOAD_VECTORIZE>;
  using Exchange = cub::BlockExchange<int, kThreads, 4>;
  using Flags = cub::BlockDiscontinuity<int, kThreads>;
  using Difference = cub::BlockAdjacentDifference<int, kThreads>;
  using Shuffle = cub::BlockShuffle<int, kThreads>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Exchange::TempStorage exchange;
    typename Flags::TempStorage flags;
    typename Difference::TempStorage difference;
    typename Shuffle::TempStorage shuffle;
  } temp;
  int items[4], heads[4], differences[4], next[4];
  Load(temp.load).Load(in + blockIdx.x * kThreads * 4, items);
  __syncthreads();
  Exchange(temp.exchange).BlockedToStriped(items, items);
  __syncthreads();
  Flags(temp.flags).FlagHeads(heads, items, ::cuda::std::not_equal_to<>{});
  __syncthreads();
  Difference(temp.difference).SubtractLeft(items, differences, ::cuda::std::minus<>{});
  __syncthreads();
  Shuffle(temp.shuffle).Up(items, next);
  if (threadIdx.x == 0) next[0] = items[0];
  for (int i = 0; i < 4; ++i)
    out[(blockIdx.x * kThreads + threadIdx.x) * 4 + i] =
        heads[i] * 1000000 + differences[i] * 3 + next[i];
}

__global__ void warp_collectives(const int* in, int* sums, int* scans, int* tails) {
  using Reduce = cub::WarpReduce<int>;
  using Scan = cub::WarpScan<int>;
  using Reduce8 = cub::WarpReduce<int, 8>;
  __shared__ typename Reduce::TempStorage reduce[kThreads / 32];
  __shared__ typename Scan::TempStorage scan[kThreads / 32];
  __shared__ typename Reduce8::TempStorage reduce8[kThreads / 8];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int value = in[i];
  const int sum = Reduce(reduce[threadIdx.x / 32]).Sum(value);
  if (threadIdx.x % 32 == 0) sums[i / 32] = sum;
  int scanned = 0;
  Scan(scan[threadIdx.x / 32]).InclusiveScan(value, scanned, ::cuda::maximum<>{});
  scans[i] = scanned;
  const int eighth = Reduce8(reduce8[threadIdx.x / 8]).HeadSegmentedSum(value, value % 3 == 0);
  if (threadIdx.x % 8 == 0) tails[i / 8] = eighth;
}

__global__ void warp_merge_sort(const float* in, float* out) {
  using Sort = cub::WarpMergeSort<float, 4, 32>;
  __shared__ typename Sort::TempStorage temp[kThreads / 32];
  float items[4];
  const int warp = threadIdx.x / 32;
  const int base = (blockIdx.x * (kThreads / 32) + warp) * 128;
  cub::LoadDirectBlocked(threadIdx.x % 32, in + base, items);
  Sort(temp[warp]).Sort(items, ::cuda::std::less<>{});
  cub::StoreDirectBlocked(threadIdx.x % 32, out + base, items);
}

__global__ void run_length_decode(const int* runs, const unsigned* lengths, int* out,
                                  const unsigned* offsets) {
  using Decode = cub::BlockRunLengthDecode<int, kThreads, 1, 4>;
  __shared__ typename Decode::TempStorage temp;
  int run[1] = {runs[blockIdx.x * kThreads + threadIdx.x]};
  unsigned length[1] = {lengths[blockIdx.x * kThreads + threadIdx.x]};
  unsigned total = 0;
  Decode decode(temp, run, length, total);
  for (unsigned done = 0; done < total; done += kThreads * 4) {
    int items[4];
    decode.RunLengthDecode(items, done);
    for (int i = 0; i < 4; ++i) {
      const unsigned at = done + threadIdx.x * 4 + i;
      if (at < total) out[offsets[blockIdx.x] + at] = items[i];
    }
    __syncthreads();
  }
}

template <cub::BlockReduceAlgorithm Algorithm, class T>
bool check_reduce(std::uint32_t seed) {
  const auto in = signed_values<T>(kCount, seed);
  Device<T> d_in(in), d_out(kBlocks);
  block_reduce<Algorithm, T><<<kBlocks, kThreads>>>(d_in.get(), d_out.get());
  std::vector<T> want(kBlocks);
  for (int i = 0; i < kCount; ++i) want[i / kTile] += in[i];
  return d_out.read() == want;
}
template <cub::BlockScanAlgorithm Algorithm, class T>
bool check_scan(std::uint32_t seed) {
  const auto in = signed_values<T>(kCount, seed);
  Device<T> d_in(in), d_out(kCount);
  block_scan<Algorithm, T><<<kBlocks, kThreads>>>(d_in.get(), d_out.get());
  std::vector<T> want(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = i % kTile == 0 ? T{} : want[i - 1] + in[i - 1];
  return d_out.read() == want;
}
template <class K, bool Descending>
bool check_radix(std::uint32_t seed) {
  const auto in = signed_values<K>(kCount, seed, 300);
  Device<K> d_in(in), d_out(kCount);
  Device<int> d_places(kCount);
  block_radix_sort<K, Descending><<<kBlocks, kThreads>>>(d_in.get(), d_out.get(), d_places.get());
  const auto got = d_out.read();
  const auto got_places = d_places.read();
  for (int b = 0; b < kBlocks; ++b) {
    std::vector<int> places(kTile);
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](int x, int y) {
      const K p = in[b * kTile + x], q = in[b * kTile + y];
      return Descending ? q < p : p < q;
    });
    for (int i = 0; i < kTile; ++i)
      if (got_places[b * kTile + i] != places[i] || got[b * kTile + i] != in[b * kTile + places[i]])
        return false;
  }
  return true;
}
template <cub::BlockHistogramAlgorithm Algorithm>
bool check_histogram(std::uint32_t seed) {
  const auto in = values<unsigned char>(kCount, seed, 256);
  Device<unsigned char> d_in(in);
  Device<unsigned> d_out(std::vector<unsigned>(256));
  block_histogram<Algorithm><<<kBlocks, kThreads>>>(d_in.get(), d_out.get());
  std::vector<unsigned> want(256);
  for (unsigned char value : in) ++want[value];
  return d_out.read() == want;
}

int main() {
  run_case("cub_block_reduce_raking_int",
           [] { return check_reduce<cub::BLOCK_REDUCE_RAKING, int>(1); });
  run_case("cub_block_reduce_commutative_double",
           [] { return check_reduce<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, double>(2); });
  run_case("cub_block_reduce_warp_float",
           [] { return check_reduce<cub::BLOCK_REDUCE_WARP_REDUCTIONS, float>(3); });
  run_case("cub_block_scan_raking_int", [] { return check_scan<cub::BLOCK_SCAN_RAKING, int>(4); });
  run_case("cub_block_scan_warp_int64",
           [] { return check_scan<cub::BLOCK_SCAN_WARP_SCANS, long long>(5); });
  run_case("cub_block_radix_sort_int", [] { return check_radix<int, false>(6); });
  run_case("cub_block_radix_sort_descending_float", [] { return check_radix<float, true>(7); });
  run_case("cub_block_merge_sort", [] {
    const auto in = triples(kCount, 8, 200);
    Device<Triple> d_in(in), d_out(kCount);
    block_merge_sort<<<kBlocks, kThreads>>>(d_in.get(), d_out.get());
    auto want = in;
    for (int b = 0; b < kBlocks; ++b)
      std::stable_sort(want.begin() + b * kTile, want.begin() + (b + 1) * kTile, TripleLess{});
    return d_out.read() == want;
  });
  run_case("cub_block_histogram_sort", [] { return check_histogram<cub::BLOCK_HISTO_SORT>(9); });
  run_case("cub_block_histogram_atomic",
           [] { return check_histogram<cub::BLOCK_HISTO_ATOMIC>(10); });
  run_case("cub_block_pipeline", [] {
    constexpr int per_block = kThreads * 4, n = per_block * kBlocks;
    const auto in = values<int>(n, 11, 4);
    Device<int> d_in(in), d_out(n);
    block_pipeline<<<kBlocks, kThreads>>>(d_in.get(), d_out.get());
    std::vector<int> want(n);
    for (int b = 0; b < kBlocks; ++b) {
      // BlockedToStriped: thread t then holds elements t, t + threads, ...
      std::vector<int> x(per_block);
      for (int t = 0; t < kThreads; ++t)
        for (int i = 0; i < 4; ++i) x[t * 4 + i] = in[b * per_block + i * kThreads + t];
      for (int i = 0; i < per_block; ++i) {
        const int head = i == 0 || x[i] != x[i - 1];
        const int difference = i == 0 ? x[i] : x[i] - x[i - 1];
        want[b * per_block + i] = head * 1000000 + difference * 3 + (i == 0 ? x[0] : x[i - 1]);
      }
    }
    return d_out.read() == want;
  });
  run_case("cub_warp_collectives", [] {
    constexpr int n = kThreads * kBlocks;
    const auto in = values<int>(n, 12);
    Device<int> d_in(in), d_sums(n / 32), d_scans(n), d_tails(n / 8);
    warp_collectives<<<kBlocks, kThreads>>>(d_in.get(), d_sums.get(), d_scans.get(), d_tails.get());
    std::vector<int> sums(n / 32), scans(n), tails(n / 8);
    for (int i = 0; i < n; ++i) {
      sums[i / 32] += in[i];
      scans[i] = i % 32 == 0 ? in[i] : std::max(scans[i - 1], in[i]);
    }
    for (int g = 0; g < n / 8; ++g)
      for (int i = 0; i < 8 && (i == 0 || in[g * 8 + i] % 3 != 0); ++i) tails[g] += in[g * 8 + i];
    return d_sums.read() == sums && d_scans.read() == scans && d_tails.read() == tails;
  });
  run_case("cub_warp_merge_sort", [] {
    constexpr int n = kThreads * 4 * kBlocks;
    auto in = signed_values<float>(n, 13, 5000);
    Device<float> d_in(in), d_out(n);
    warp_merge_sort<<<kBlocks, kThreads>>>(d_in.get(), d_out.get());
    for (int base = 0; base < n; base += 128) std::sort(in.begin() + base, in.begin() + base + 128);
    return d_out.read() == in;
  });
  run_case("cub_block_run_length_decode", [] {
    constexpr int n = kThreads * kBlocks;
    const auto runs = values<int>(n, 14);
    auto lengths = values<unsigned>(n, 15, 9);
    for (unsigned& length : lengths) ++length;
    std::vector<unsigned> offsets;
    std::vector<int> want;
    for (int i = 0; i < n; ++i) {
      if (i % kThreads == 0) offsets.push_back(static_cast<unsigned>(want.size()));
      want.insert(want.end(), lengths[i], runs[i]);
    }
    Device<int> d_runs(runs), d_out(want.size());
    Device<unsigned> d_lengths(lengths), d_offsets(offsets);
    run_length_decode<<<kBlocks, kThreads>>>(d_runs.get(), d_lengths.get(), d_out.get(),
                                             d_offsets.get());
    return d_out.read() == want;
  });
  return finish();
}
