// SPDX-License-Identifier: Apache-2.0
// Copies between all kinds of memory, as lines, rectangles and boxes; fills; arrays of all formats
// and shapes.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "tests/conformance/driver/driver_case.h"

namespace sluice::test {
namespace {

enum class Shape { kLine, kRectangle, kBox };
constexpr const char* kShapeNames[] = {"Line", "Rectangle", "Box"};
enum class When { kNow, kInAStream };

// 3 slices of 5 rows of 40 bytes, in memory with room around them.
constexpr size_t kWidth = 40, kRows = 5, kSlices = 3, kPitch = 64, kHeight = 6;
constexpr size_t kBytes = 8192, kFromAt = 100, kToAt = 260;

class Copies : public DriverCase,
               public testing::WithParamInterface<std::tuple<Kind, Kind, Shape, When>> {};

TEST_P(Copies, Arrive) {
  const auto [from_kind, to_kind, shape, when] = GetParam();
  Piece from(from_kind, kBytes), to(to_kind, kBytes);
  const std::vector<uint8_t> source = counted_bytes(kBytes, 3);
  std::vector<uint8_t> expected(kBytes, 0xee);
  from.write(source);
  to.write(expected);
  CUstream stream = nullptr;
  if (when == When::kInAStream) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const size_t slices = shape == Shape::kBox ? kSlices : 1;
  const size_t rows = shape == Shape::kLine ? 1 : kRows;
  if (shape == Shape::kLine) {
    const CUdeviceptr dst = to.address() + kToAt, src = from.address() + kFromAt;
    OK(stream != nullptr ? cuMemcpyAsync(dst, src, kWidth, stream) : cuMemcpy(dst, src, kWidth));
  } else if (shape == Shape::kRectangle) {
    CUDA_MEMCPY2D c{};
    c.WidthInBytes = kWidth, c.Height = kRows;
    c.srcMemoryType = from.type(), c.dstMemoryType = to.type();
    c.srcHost = reinterpret_cast<void*>(from.address() + kFromAt);
    c.srcDevice = from.address() + kFromAt;
    c.dstHost = reinterpret_cast<void*>(to.address() + kToAt);
    c.dstDevice = to.address() + kToAt;
    c.srcPitch = c.dstPitch = kPitch;
    OK(stream != nullptr ? cuMemcpy2DAsync(&c, stream) : cuMemcpy2D(&c));
  } else {
    CUDA_MEMCPY3D c{};
    c.WidthInBytes = kWidth, c.Height = kRows, c.Depth = kSlices;
    c.srcMemoryType = from.type(), c.dstMemoryType = to.type();
    c.srcHost = reinterpret_cast<void*>(from.address() + kFromAt);
    c.srcDevice = from.address() + kFromAt;
    c.dstHost = reinterpret_cast<void*>(to.address() + kToAt);
    c.dstDevice = to.address() + kToAt;
    c.srcPitch = c.dstPitch = kPitch;
    c.srcHeight = c.dstHeight = kHeight;
    OK(stream != nullptr ? cuMemcpy3DAsync(&c, stream) : cuMemcpy3D(&c));
  }
  for (size_t z = 0; z < slices; ++z)
    for (size_t y = 0; y < rows; ++y) {
      const size_t at = (z * kHeight + y) * kPitch;
      std::copy_n(source.begin() + kFromAt + at, kWidth, expected.begin() + kToAt + at);
    }
  if (stream != nullptr) OK(cuStreamSynchronize(stream));
  OK(cuCtxSynchronize());
  EXPECT_EQ(to.read(), expected);
  EXPECT_EQ(from.read(), source);
  if (stream != nullptr) OK(cuStreamDestroy(stream));
}

INSTANTIATE_TEST_SUITE_P(
    All, Copies,
    testing::Combine(testing::ValuesIn(kAllKinds), testing::ValuesIn(kAllKinds),
                     testing::Values(Shape::kLine, Shape::kRectangle, Shape::kBox),
                     testing::Values(When::kNow, When::kInAStream)),
    [](const auto& one) {
      return std::string(name_of(std::get<0>(one.param))) + "To" + name_of(std::get<1>(one.param)) +
             kShapeNames[static_cast<int>(std::get<2>(one.param))] +
             (std::get<3>(one.param) == When::kNow ? "" : "InAStream");
    });

class Fills : public DriverCase,
              public testing::WithParamInterface<std::tuple<Kind, unsigned, Shape, When>> {};

TEST_P(Fills, ReachWhatTheyName) {
  const auto [kind, element, shape, when] = GetParam();
  Piece memory(kind, kBytes);
  std::vector<uint8_t> expected(kBytes, 0xee);
  memory.write(expected);
  CUstream stream = nullptr;
  if (when == When::kInAStream) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr at = memory.address() + 64;
  const size_t rows = shape == Shape::kLine ? 1 : kRows;
  constexpr uint32_t kPattern = 0x44332211;
  constexpr size_t kElements = 9;
  const auto v8 = static_cast<unsigned char>(kPattern);
  const auto v16 = static_cast<unsigned short>(kPattern);
  if (shape == Shape::kLine) {
    if (element == 1)
      OK(stream != nullptr ? cuMemsetD8Async(at, v8, kElements, stream)
                           : cuMemsetD8(at, v8, kElements));
    if (element == 2)
      OK(stream != nullptr ? cuMemsetD16Async(at, v16, kElements, stream)
                           : cuMemsetD16(at, v16, kElements));
    if (element == 4)
      OK(stream != nullptr ? cuMemsetD32Async(at, kPattern, kElements, stream)
                           : cuMemsetD32(at, kPattern, kElements));
  } else {
    if (element == 1)
      OK(stream != nullptr ? cuMemsetD2D8Async(at, kPitch, v8, kElements, kRows, stream)
                           : cuMemsetD2D8(at, kPitch, v8, kElements, kRows));
    if (element == 2)
      OK(stream != nullptr ? cuMemsetD2D16Async(at, kPitch, v16, kElements, kRows, stream)
                           : cuMemsetD2D16(at, kPitch, v16, kElements, kRows));
    if (element == 4)
      OK(stream != nullptr ? cuMemsetD2D32Async(at, kPitch, kPattern, kElements, kRows, stream)
                           : cuMemsetD2D32(at, kPitch, kPattern, kElements, kRows));
  }
  for (size_t y = 0; y < rows; ++y)
    for (size_t i = 0; i < kElements * element; ++i)
      expected[64 + y * kPitch + i] = static_cast<uint8_t>(kPattern >> (8 * (i % element)));
  if (stream != nullptr) OK(cuStreamSynchronize(stream));
  OK(cuCtxSynchronize());
  EXPECT_EQ(memory.read(), expected);
  if (stream != nullptr) OK(cuStreamDestroy(stream));
}

INSTANTIATE_TEST_SUITE_P(
    All, Fills,
    testing::Combine(testing::Values(Kind::kDevice, Kind::kPinned, Kind::kManaged),
                     testing::Values(1u, 2u, 4u), testing::Values(Shape::kLine, Shape::kRectangle),
                     testing::Values(When::kNow, When::kInAStream)),
    [](const auto& one) {
      return std::string(name_of(std::get<0>(one.param))) + "By" +
             std::to_string(std::get<1>(one.param)) +
             kShapeNames[static_cast<int>(std::get<2>(one.param))] +
             (std::get<3>(one.param) == When::kNow ? "" : "InAStream");
    });

// --- arrays ---

struct Format {
  const char* name;
  CUarray_format format;
  size_t bytes;
};
constexpr Format kFormats[] = {
    {"U8", CU_AD_FORMAT_UNSIGNED_INT8, 1},   {"U16", CU_AD_FORMAT_UNSIGNED_INT16, 2},
    {"U32", CU_AD_FORMAT_UNSIGNED_INT32, 4}, {"S8", CU_AD_FORMAT_SIGNED_INT8, 1},
    {"S16", CU_AD_FORMAT_SIGNED_INT16, 2},   {"S32", CU_AD_FORMAT_SIGNED_INT32, 4},
    {"F16", CU_AD_FORMAT_HALF, 2},           {"F32", CU_AD_FORMAT_FLOAT, 4}};
struct Extent {
  const char* name;
  size_t width, height, depth;
  unsigned flags;
};
constexpr Extent kExtents[] = {{"Line", 30, 0, 0, 0},
                               {"Picture", 30, 7, 0, 0},
                               {"Volume", 10, 7, 5, 0},
                               {"Layers", 10, 7, 3, CUDA_ARRAY3D_LAYERED},
                               {"LayersOfLines", 30, 0, 3, CUDA_ARRAY3D_LAYERED},
                               {"Cube", 8, 8, 6, CUDA_ARRAY3D_CUBEMAP}};

class Arrays : public DriverCase,
               public testing::WithParamInterface<std::tuple<Format, unsigned, Extent>> {};

TEST_P(Arrays, HoldWhatIsCopiedThere) {
  const auto& [format, channels, extent] = GetParam();
  CUDA_ARRAY3D_DESCRIPTOR d{extent.width,  extent.height, extent.depth,
                            format.format, channels,      extent.flags};
  CUarray array = nullptr;
  OK(cuArray3DCreate(&array, &d));
  CUDA_ARRAY3D_DESCRIPTOR is{};
  OK(cuArray3DGetDescriptor(&is, array));
  EXPECT_EQ(is.Width, d.Width);
  EXPECT_EQ(is.Height, d.Height);
  EXPECT_EQ(is.Depth, d.Depth);
  EXPECT_EQ(is.Format, d.Format);
  EXPECT_EQ(is.NumChannels, channels);
  const size_t texel = format.bytes * channels, row = extent.width * texel;
  const size_t rows = std::max<size_t>(extent.height, 1),
               slices = std::max<size_t>(extent.depth, 1);
  std::vector<uint8_t> texels = counted_bytes(row * rows * slices, 11), back(texels.size());
  CUDA_MEMCPY3D c{};
  c.WidthInBytes = row, c.Height = rows, c.Depth = slices;
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = texels.data();
  c.srcPitch = row, c.srcHeight = rows;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = array;
  OK(cuMemcpy3D(&c));
  // One texel anew, in the middle.
  std::vector<uint8_t> one(texel, 0x99);
  CUDA_MEMCPY3D patch = c;
  patch.WidthInBytes = texel, patch.Height = patch.Depth = 1;
  patch.srcHost = one.data(), patch.srcPitch = texel, patch.srcHeight = 1;
  patch.dstXInBytes = 3 * texel, patch.dstY = rows / 2, patch.dstZ = slices / 2;
  OK(cuMemcpy3D(&patch));
  std::copy_n(
      one.begin(), texel,
      texels.begin() + static_cast<ptrdiff_t>((slices / 2 * rows + rows / 2) * row + 3 * texel));
  CUDA_MEMCPY3D out{};
  out.WidthInBytes = row, out.Height = rows, out.Depth = slices;
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY, out.srcArray = array;
  out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = back.data();
  out.dstPitch = row, out.dstHeight = rows;
  OK(cuMemcpy3D(&out));
  EXPECT_EQ(back, texels);
  out.WidthInBytes = row + texel;
  out.dstPitch = row + texel;
  REFUSED(cuMemcpy3D(&out));
  OK(cuArrayDestroy(array));
}

INSTANTIATE_TEST_SUITE_P(All, Arrays,
                         testing::Combine(testing::ValuesIn(kFormats), testing::Values(1u, 2u, 4u),
                                          testing::ValuesIn(kExtents)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param).name) + "x" +
                                  std::to_string(std::get<1>(one.param)) +
                                  std::get<2>(one.param).name;
                         });

class Mipmaps : public DriverCase, public testing::WithParamInterface<Extent> {};

TEST_P(Mipmaps, AreArraysOfHalfTheSize) {
  const Extent& extent = GetParam();
  CUDA_ARRAY3D_DESCRIPTOR d{
      extent.width, extent.height, extent.depth, CU_AD_FORMAT_UNSIGNED_INT8, 4, extent.flags};
  CUmipmappedArray mipmap = nullptr;
  OK(cuMipmappedArrayCreate(&mipmap, &d, 2));
  CUarray levels[2] = {}, again = nullptr;
  OK(cuMipmappedArrayGetLevel(&levels[0], mipmap, 0));
  OK(cuMipmappedArrayGetLevel(&levels[1], mipmap, 1));
  OK(cuMipmappedArrayGetLevel(&again, mipmap, 1));
  EXPECT_NE(levels[0], levels[1]);
  CUDA_ARRAY3D_DESCRIPTOR is{};
  OK(cuArray3DGetDescriptor(&is, levels[1]));
  EXPECT_EQ(is.Width, extent.width / 2);
  EXPECT_EQ(is.Height, extent.height / 2);
  EXPECT_EQ(is.Depth, extent.flags != 0 ? extent.depth : extent.depth / 2);
  EXPECT_EQ(is.NumChannels, 4u);
  const size_t row = is.Width * 4, rows = std::max<size_t>(is.Height, 1);
  const size_t slices = std::max<size_t>(is.Depth, 1);
  const std::vector<uint8_t> texels = counted_bytes(row * rows * slices, 5);
  std::vector<uint8_t> back(texels.size());
  CUDA_MEMCPY3D c{};
  c.WidthInBytes = row, c.Height = rows, c.Depth = slices;
  c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = texels.data();
  c.srcPitch = row, c.srcHeight = rows;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = levels[1];
  OK(cuMemcpy3D(&c));
  CUDA_MEMCPY3D out{};
  out.WidthInBytes = row, out.Height = rows, out.Depth = slices;
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY, out.srcArray = levels[1];
  out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = back.data();
  out.dstPitch = row, out.dstHeight = rows;
  OK(cuMemcpy3D(&out));
  EXPECT_EQ(back, texels);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&again, mipmap, 2));
  OK(cuMipmappedArrayDestroy(mipmap));
}
INSTANTIATE_TEST_SUITE_P(All, Mipmaps, testing::ValuesIn(kExtents),
                         [](const auto& one) { return std::string(one.param.name); });

class ArrayCalls : public DriverCase {};

TEST_F(ArrayCalls, WrongMipmaps) {
  CUmipmappedArray mipmap = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d{0, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  REFUSED(cuMipmappedArrayCreate(&mipmap, &d, 2));
  d = {8, 8, 0, CU_AD_FORMAT_FLOAT, 3, 0};
  REFUSED(cuMipmappedArrayCreate(&mipmap, &d, 2));
  REFUSED(cuMipmappedArrayDestroy(nullptr));
  EXPECT_EQ(mipmap, nullptr);
}

// What only arrays of other kinds have.
class GuestCallsOfArrays : public DriverCase {};
TEST_F(GuestCallsOfArrays, NeitherSparseNorInPlanes) {
  CUDA_ARRAY3D_DESCRIPTOR d{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUarray array = nullptr, plane = nullptr;
  CUmipmappedArray mipmap = nullptr;
  OK(cuArray3DCreate(&array, &d));
  OK(cuMipmappedArrayCreate(&mipmap, &d, 2));
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  REFUSED(cuArrayGetMemoryRequirements(&needs, array, 0));
  REFUSED(cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, 0));
  REFUSED(cuArrayGetSparseProperties(&sparse, array));
  REFUSED(cuMipmappedArrayGetSparseProperties(&sparse, mipmap));
  REFUSED(cuArrayGetPlane(&plane, array, 0));
  OK(cuMipmappedArrayDestroy(mipmap));
  OK(cuArrayDestroy(array));
}

class OtherProcesses : public DriverCase {};
// What passes between processes is in tests/system/cases_ipc.py and
// tests/cudart/programs/memory/ipc.cu.
TEST_F(OtherProcesses, HandlesForThem) {
  CUdeviceptr memory = 0, opened = 0;
  OK(cuMemAlloc(&memory, 1 << 16));
  CUipcMemHandle handle, again;
  OK(cuIpcGetMemHandle(&handle, memory));
  OK(cuIpcGetMemHandle(&again, memory));
  EXPECT_EQ(std::memcmp(&handle, &again, sizeof handle), 0);
  REFUSED(cuIpcGetMemHandle(&handle, 0x1000));
  REFUSED(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));  // its own
  REFUSED(cuIpcOpenMemHandle(&opened, CUipcMemHandle{}, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  REFUSED(cuIpcCloseMemHandle(memory));
  OK(cuMemFree(memory));
  CUevent event = nullptr, timed = nullptr;
  CUipcEventHandle event_handle;
  REFUSED(cuEventCreate(&timed, CU_EVENT_INTERPROCESS));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  REFUSED(cuIpcGetEventHandle(&event_handle, event));
  REFUSED(cuIpcOpenEventHandle(&timed, CUipcEventHandle{}));
  OK(cuEventDestroy(event));
}

class TensorMaps : public DriverCase {
 protected:
  static CUresult encode(CUtensorMap* map, CUdeviceptr at) {
    const cuuint64_t sizes[] = {32, 8}, strides[] = {128};
    const cuuint32_t box[] = {32, 8}, steps[] = {1, 1};
    constexpr auto kInt32 = static_cast<CUtensorMapDataType>(3);
    return cuTensorMapEncodeTiled(map, kInt32, 2, reinterpret_cast<void*>(at), sizes, strides, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
};
TEST_F(TensorMaps, NeedAContext) {
  Piece memory(Kind::kDevice, 1024);
  CUtensorMap map{};
  OK(encode(&map, memory.address()));
  CUcontext popped = nullptr;
  OK(cuCtxPopCurrent_v2(&popped));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, encode(&map, memory.address()));
  OK(cuCtxPushCurrent_v2(popped));
  OK(encode(&map, memory.address()));
}
TEST_F(TensorMaps, OfAnotherAddressAreAsIfMadeForIt) {
  Piece memory(Kind::kDevice, 4096);
  CUtensorMap map{}, there{};
  OK(encode(&map, memory.address()));
  OK(encode(&there, memory.address() + 1024));
  EXPECT_NE(std::memcmp(&map, &there, sizeof map), 0);
  OK(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(memory.address() + 1024)));
  EXPECT_EQ(std::memcmp(&map, &there, sizeof map), 0);
}

}  // namespace
}  // namespace sluice::test
