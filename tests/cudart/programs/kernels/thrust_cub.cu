// SPDX-License-Identifier: Apache-2.0
// Thrust and CUB: sort, scan, reduce.
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <cub/device/device_reduce.cuh>

#include "../check.h"

int main() {
  constexpr int n = 5000;
  thrust::host_vector<int> h(n);
  unsigned x = 1;
  long long sum = 0;
  for (int& v : h) {
    x = x * 1664525u + 1013904223u;
    v = static_cast<int>(x >> 12);
    sum += v;
  }
  thrust::device_vector<int> d = h;
  thrust::sort(d.begin(), d.end());
  thrust::host_vector<int> sorted = d;
  for (int i = 1; i < n; ++i) CHECK(sorted[i - 1] <= sorted[i]);
  CHECK(thrust::reduce(d.begin(), d.end(), 0ll) == sum);
  thrust::device_vector<int> ones(n, 1);
  thrust::inclusive_scan(ones.begin(), ones.end(), ones.begin());
  CHECK(ones[0] == 1 && ones[n - 1] == n);
  size_t bytes = 0;
  int* out;
  OK(cudaMalloc(&out, sizeof(int)));
  OK(cub::DeviceReduce::Max(nullptr, bytes, thrust::raw_pointer_cast(d.data()), out, n));
  void* scratch;
  OK(cudaMalloc(&scratch, bytes));
  OK(cub::DeviceReduce::Max(scratch, bytes, thrust::raw_pointer_cast(d.data()), out, n));
  int largest = 0;
  OK(cudaMemcpy(&largest, out, sizeof largest, cudaMemcpyDeviceToHost));
  CHECK(largest == sorted[n - 1]);
  return result();
}
