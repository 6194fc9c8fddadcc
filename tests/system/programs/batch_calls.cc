// SPDX-License-Identifier: Apache-2.0
// Part of memory-calls: batches of boxes (cuMemcpy3DBatchAsync).
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/system/programs/memory_calls.h"

namespace sluice::test {

// A batch of boxes: an element is a byte between memories, a texel where an array is.
void batches_of_boxes() {
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 4, shape.Height = 3, shape.Depth = 2;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT32, shape.NumChannels = 1;
  CUarray array, narrow;
  OK(cuArray3DCreate(&array, &shape));
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  OK(cuArray3DCreate(&narrow, &shape));
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 4096));
  OK(cuMemsetD8(memory, 0, 4096));
  OK(cuCtxSynchronize());
  const auto place = [](CUdeviceptr at, size_t row = 0, size_t layer = 0) {
    CUmemcpy3DOperand operand{};
    operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operand.op.ptr.ptr = at;
    operand.op.ptr.rowLength = row, operand.op.ptr.layerHeight = layer;
    return operand;
  };
  const auto in = [](CUarray which, size_t x, size_t y, size_t z) {
    CUmemcpy3DOperand operand{};
    operand.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    operand.op.array.array = which;
    operand.op.array.offset = {x, y, z};
    return operand;
  };
  const auto copy = [](CUmemcpy3DOperand dst, CUmemcpy3DOperand src, CUextent3D extent) {
    CUDA_MEMCPY3D_BATCH_OP op{};
    op.dst = dst, op.src = src, op.extent = extent;
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    return op;
  };
  uint32_t words[24], back[24] = {};
  for (uint32_t i = 0; i < 24; ++i) words[i] = 100 + i;
  const auto host = reinterpret_cast<CUdeviceptr>(words);

  // Into the array; from rows of 6 bytes to rows of 8 and slices of 4 rows.
  unsigned char bytes[2 * 2 * 6];
  for (unsigned i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<unsigned char>(i + 1);
  const auto bytes_at = reinterpret_cast<CUdeviceptr>(bytes);
  CUDA_MEMCPY3D_BATCH_OP ops[2] = {
      copy(in(array, 0, 0, 0), place(host), {4, 3, 2}),
      copy(place(memory, 8, 4), place(bytes_at, 6), {5, 2, 2}),
  };
  OK(cuMemcpy3DBatchAsync_v2(2, ops, 0, stream));
  for (auto& word : words) word = 0;  // read during the call
  OK(cuStreamSynchronize(stream));
  unsigned char got[64] = {};
  OK(cuMemcpyDtoH(got, memory, sizeof got));
  for (unsigned z = 0; z < 2; ++z)
    for (unsigned y = 0; y < 2; ++y)
      for (unsigned x = 0; x < 8; ++x)
        EXPECT(got[z * 32 + y * 8 + x] == (x < 5 ? 1 + z * 12 + y * 6 + x : 0));

  // A part of the array, then back.
  ops[0] = copy(place(memory + 1024), in(array, 1, 1, 1), {2, 2, 1});
  ops[1] = copy(place(reinterpret_cast<CUdeviceptr>(back)), in(array, 0, 0, 0), {4, 3, 2});
  OK(cuMemcpy3DBatchAsync_v2(2, ops, 0, stream));
  OK(cuStreamSynchronize(stream));
  for (uint32_t i = 0; i < 24; ++i) EXPECT(back[i] == 100 + i);
  uint32_t part[4] = {};
  OK(cuMemcpyDtoH(part, memory + 1024, sizeof part));
  EXPECT(part[0] == 117 && part[1] == 118 && part[2] == 121 && part[3] == 122);

  // A pinned source may be written to as soon as the call has come back.
  void* pinned = nullptr;
  OK(cuMemAllocHost(&pinned, 1 << 20));
  std::memset(pinned, 7, 1 << 20);
  CUdeviceptr large = 0;
  OK(cuMemAlloc(&large, 1 << 20));
  ops[0] = copy(place(large), place(reinterpret_cast<CUdeviceptr>(pinned)), {1024, 1024, 1});
  OK(cuMemcpy3DBatchAsync_v2(1, ops, 0, stream));
  std::memset(pinned, 8, 1 << 20);
  OK(cuStreamSynchronize(stream));
  std::vector<unsigned char> arrived(1 << 20);
  OK(cuMemcpyDtoH(arrived.data(), large, arrived.size()));
  for (const unsigned char one : arrived)
    if (one != 7) {
      EXPECT(one == 7);
      break;
    }

  // What is wrong with the second refuses the first as well.
  OK(cuMemsetD8(memory, 0, 64));
  OK(cuCtxSynchronize());
  const auto good = copy(place(memory), place(bytes_at), {4, 1, 1});
  const auto bad = [&](CUDA_MEMCPY3D_BATCH_OP op) {
    CUDA_MEMCPY3D_BATCH_OP two[2] = {good, op};
    ANSWERS(kInvalid, cuMemcpy3DBatchAsync_v2(2, two, 0, stream));
  };
  bad(copy(place(memory), place(bytes_at), {4, 0, 1}));
  bad(copy(place(memory, 3), place(bytes_at), {4, 1, 1}));
  bad(copy(place(memory, 0, 1), place(bytes_at), {4, 2, 1}));
  bad(copy(place(0), place(bytes_at), {4, 1, 1}));
  bad(copy(place(memory), place(bytes_at), {SIZE_MAX, 1, 1}));
  bad(copy(place(memory), place(bytes_at), {4, SIZE_MAX, SIZE_MAX}));
  bad(copy(place(memory, SIZE_MAX, 2), place(bytes_at), {4, 2, 2}));
  bad(copy(in(array, 2, 0, 0), place(host), {3, 1, 1}));
  bad(copy(in(array, 0, 0, 2), place(host), {4, 1, 1}));
  bad(copy(in(array, SIZE_MAX / 2, 0, 0), place(host), {4, 1, 1}));
  bad(copy(in(array, 0, 0, 0), place(host), {SIZE_MAX / 2, 1, 1}));
  bad(copy(in(array, 0, 0, 0), in(narrow, 0, 0, 0), {4, 1, 1}));
  bad(copy(in(reinterpret_cast<CUarray>(0x5550), 0, 0, 0), place(host), {4, 1, 1}));
  auto odd = good;
  odd.dst.type = static_cast<CUmemcpy3DOperandType>(3);
  bad(odd);
  odd = good;
  odd.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  bad(odd);
  auto one = good;
  ANSWERS(kInvalid, cuMemcpy3DBatchAsync_v2(0, &one, 0, stream));
  ANSWERS(kInvalid, cuMemcpy3DBatchAsync_v2(1, nullptr, 0, stream));
  ANSWERS(kInvalid, cuMemcpy3DBatchAsync_v2(1, &one, 1, stream));
  ANSWERS(kInvalid, cuMemcpy3DBatchAsync_v2(1, &one, 0, nullptr));
  OK(cuArrayDestroy(narrow));
  bad(copy(in(narrow, 0, 0, 0), place(bytes_at), {4, 1, 1}));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(got, memory, sizeof got));
  for (const unsigned char byte : got) EXPECT(byte == 0);

  OK(cuArrayDestroy(array));
  OK(cuMemFree(large));
  OK(cuMemFree(memory));
  OK(cuMemFreeHost(pinned));
  OK(cuStreamDestroy(stream));
}

}  // namespace sluice::test
