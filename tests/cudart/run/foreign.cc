// SPDX-License-Identifier: Apache-2.0
// A libcudart.so.13 that a program brings with it, as PyTorch's packages do: it finds no GPU.
extern "C" __attribute__((visibility("default"))) int cudaGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return 801;  // cudaErrorNotSupported, as NVIDIA's says in a guest
}
