// SPDX-License-Identifier: Apache-2.0
// Arrays, texture and surface objects by a real sluice-worker on the software GPU: what a guest
// says of sizes, formats, handles and boxes is checked before the driver sees it, and memory is
// charged as long as anything holds it.
#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

constexpr int kInvalid = CUDA_ERROR_INVALID_VALUE, kBadHandle = CUDA_ERROR_INVALID_HANDLE;
constexpr uint64_t kBeyond = ~uint64_t{0};
constexpr uint64_t kBulk = WorkerBench::kStaging;

constexpr CUDA_ARRAY3D_DESCRIPTOR kPlain{
    16, 8, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};

class WorkerArrays : public WorkerProcess {
 protected:
  void start_with(uint64_t limit = 64u << 20) {
    WorkerBench::Options o;
    o.memory_limit = o.lease_limit = limit;
    start(o);
    make_context();
  }
  Answer create(const CUDA_ARRAY3D_DESCRIPTOR& d) {
    return generic(kOpcode_cuArray3DCreate_v2, {raw<uint8_t>(1), raw(d)}, context);
  }
  int destroy(uint64_t array, uint64_t in) {
    return generic(kOpcode_cuArrayDestroy, {raw(array)}, in).status;
  }
  int destroy(uint64_t array) { return destroy(array, context); }
  static CUDA_RESOURCE_DESC of_array(uint64_t handle) {
    CUDA_RESOURCE_DESC r{};
    r.resType = CU_RESOURCE_TYPE_ARRAY;
    r.res.array.hArray = reinterpret_cast<CUarray>(handle);
    return r;
  }
  Answer texture(const CUDA_RESOURCE_DESC& r, const CUDA_TEXTURE_DESC& t = {},
                 const CUDA_RESOURCE_VIEW_DESC* view = nullptr) {
    const CUDA_RESOURCE_VIEW_DESC none{};
    return generic(kOpcode_cuTexObjectCreate,
                   {raw<uint8_t>(1), raw(r), raw(t), raw<uint8_t>(view != nullptr),
                    raw(view != nullptr ? *view : none)},
                   context);
  }
  Answer create_mipmap(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels) {
    return generic(kOpcode_cuMipmappedArrayCreate, {raw<uint8_t>(1), raw(d), raw(levels)}, context);
  }
  Answer level(uint64_t mipmap, unsigned k) {
    return generic(kOpcode_cuMipmappedArrayGetLevel, {raw<uint8_t>(1), raw(mipmap), raw(k)},
                   context);
  }
  int destroy_mipmap(uint64_t mipmap) {
    return generic(kOpcode_cuMipmappedArrayDestroy, {raw(mipmap)}, context).status;
  }
  static CUDA_RESOURCE_DESC of_mipmap(uint64_t handle) {
    CUDA_RESOURCE_DESC r{};
    r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    r.res.mipmap.hMipmappedArray = reinterpret_cast<CUmipmappedArray>(handle);
    return r;
  }
  static CUDA_TEXTURE_DESC normalized() {
    CUDA_TEXTURE_DESC t{};
    t.flags = CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_READ_AS_INTEGER;
    return t;
  }
  Answer surface(const CUDA_RESOURCE_DESC& r) {
    return generic(kOpcode_cuSurfObjectCreate, {raw<uint8_t>(1), raw(r)}, context);
  }
  int end_texture(uint64_t object) {
    return generic(kOpcode_cuTexObjectDestroy, {raw(object)}, context).status;
  }
  int end_surface(uint64_t object) {
    return generic(kOpcode_cuSurfObjectDestroy, {raw(object)}, context).status;
  }
  // All of a kPlain array from staging memory.
  static sluice_copy_box whole(uint64_t array) {
    sluice_copy_box c{};
    c.dst = {array, 0, 0, 0, 0, 0, SLUICE_COPY_ARRAY, 0};
    c.src = {kBulk, 0, 0, 0, 64, 8, SLUICE_COPY_BULK, 0};
    c.width = 64, c.height = 8, c.depth = 1;
    c.wait = 1;
    return c;
  }
  int copy(const sluice_copy_box& c) { return b->call(SLUICE_CALL_COPY_BOX, c, context).status; }
  uint64_t free_memory() {
    return generic(kOpcode_cuMemGetInfo_v2, {raw<uint8_t>(1), raw<uint8_t>(1)}, context)
        .as<uint64_t>();
  }
};

TEST_F(WorkerArrays, DescriptionsAreCheckedAndCharged) {
  start_with(8u << 20);
  const uint64_t before = free_memory();
  auto d = kPlain;
  const auto refused = [&](int status) {
    EXPECT_EQ(create(d).status, status);
    d = kPlain;
  };
  d.Width = 0, refused(kInvalid);
  d.Width = kBeyond, refused(kInvalid);
  d.Height = kBeyond, refused(kInvalid);
  d.Depth = kBeyond, refused(kInvalid);
  d.NumChannels = 4, d.Width = (1ull << 60) + 1, refused(kInvalid);  // 16 bytes, if it wraps
  d.Height = d.Depth = (1ull << 32) + 1, refused(kInvalid);
  d.NumChannels = 3, refused(kInvalid);
  d.NumChannels = 0x40000001, refused(kInvalid);
  d.Format = static_cast<CUarray_format>(0x77), refused(kInvalid);
  d.Flags = CUDA_ARRAY3D_CUBEMAP, refused(kInvalid);  // it is not square
  d.Flags = 0x40, refused(CUDA_ERROR_NOT_SUPPORTED);  // sparse
  d.Flags = ~0u, refused(CUDA_ERROR_NOT_SUPPORTED);
  d.Width = d.Height = d.Depth = 1u << 20, refused(CUDA_ERROR_OUT_OF_MEMORY);
  d.Width = d.Height = 2048, refused(CUDA_ERROR_OUT_OF_MEMORY);  // 16 MiB
  EXPECT_EQ(free_memory(), before);
  d.Width = 1024, d.Height = 1280;  // 5 MiB, and what the GPU rounds it up to
  const uint64_t array = create(d).as<uint64_t>();
  ASSERT_EQ(SLUICE_HANDLE_KIND(array), static_cast<uint32_t>(SLUICE_HANDLE_ARRAY));
  EXPECT_LE(free_memory(), before - (4u << 20));
  EXPECT_EQ(create(d).status, CUDA_ERROR_OUT_OF_MEMORY) << "the vGPU's memory";
  EXPECT_EQ(destroy(array ^ 2), kBadHandle);
  EXPECT_EQ(destroy(context), kBadHandle) << "a handle of another kind";
  EXPECT_EQ(destroy(array), CUDA_SUCCESS);
  EXPECT_EQ(destroy(array), kBadHandle);
  EXPECT_EQ(free_memory(), before);
}

TEST_F(WorkerArrays, ObjectsNameOnlyWhatIsTheSessions) {
  start_with();
  const uint64_t array = create(kPlain).as<uint64_t>(), memory = alloc(4096).as<uint64_t>();
  EXPECT_EQ(texture(of_array(array ^ 2)).status, kBadHandle);
  EXPECT_EQ(texture(of_array(context)).status, kBadHandle) << "a handle of another kind";
  EXPECT_EQ(texture(of_array(0)).status, kBadHandle);
  EXPECT_EQ(texture(of_array(memory)).status, kBadHandle) << "an address for a handle";
  auto odd = of_array(array);
  odd.flags = 1;
  EXPECT_EQ(texture(odd).status, kInvalid);
  for (const int kind : {-1, 4, 0x7fffffff}) {
    odd = of_array(array), odd.resType = static_cast<CUresourcetype>(kind);
    EXPECT_EQ(texture(odd).status, kInvalid);
    EXPECT_EQ(surface(odd).status, kInvalid);
  }
  odd = of_array(array), odd.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  EXPECT_EQ(texture(odd).status, kBadHandle) << "an array is no mipmapped one";
  CUDA_TEXTURE_DESC t{};
  t.addressMode[2] = static_cast<CUaddress_mode>(4);
  EXPECT_EQ(texture(of_array(array), t).status, kInvalid);
  t = {}, t.filterMode = static_cast<CUfilter_mode>(-1);
  EXPECT_EQ(texture(of_array(array), t).status, kInvalid);
  t = {}, t.flags = ~0u;
  EXPECT_EQ(texture(of_array(array), t).status, CUDA_ERROR_NOT_SUPPORTED);

  CUDA_RESOURCE_DESC linear{};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4096};
  const auto refused = [&] { EXPECT_EQ(texture(linear).status, kInvalid); };
  linear.res.linear.sizeInBytes = 4097, refused();
  linear.res.linear.sizeInBytes = kBeyond, refused();
  linear.res.linear.sizeInBytes = 4096, linear.res.linear.devPtr = memory + 512, refused();
  linear.res.linear.devPtr = SLUICE_WINDOW_ADDRESS, refused();
  linear.res.linear.devPtr = reinterpret_cast<uint64_t>(&memory), refused();
  linear.res.linear.devPtr = memory, linear.res.linear.numChannels = 3, refused();
  linear.res.linear.numChannels = 1;
  EXPECT_EQ(surface(linear).status, kInvalid);
  const uint64_t plain = texture(linear).as<uint64_t>();

  CUDA_RESOURCE_DESC rows{};
  rows.resType = CU_RESOURCE_TYPE_PITCH2D;
  const auto pitched = [&](uint64_t at, size_t width, size_t height, size_t pitch) {
    rows.res.pitch2D = {at, CU_AD_FORMAT_UNSIGNED_INT8, 1, width, height, pitch};
    return texture(rows).status;
  };
  EXPECT_EQ(pitched(memory, 64, 65, 64), kInvalid);
  EXPECT_EQ(pitched(memory, 64, kBeyond, 64), kInvalid);
  EXPECT_EQ(pitched(memory, kBeyond, 2, 64), kInvalid);
  EXPECT_EQ(pitched(memory, 64, 2, kBeyond), kInvalid);
  EXPECT_EQ(pitched(memory, 65, 2, 64), kInvalid);
  EXPECT_EQ(pitched(memory, 64, 64, 64), CUDA_SUCCESS);

  EXPECT_EQ(end_texture(plain + 77), kInvalid);
  EXPECT_EQ(end_surface(plain), kInvalid) << "an object of the other kind";
  EXPECT_EQ(end_texture(plain), CUDA_SUCCESS);
  EXPECT_EQ(end_texture(plain), kInvalid);
  auto no_surface = kPlain;
  no_surface.Flags = 0;
  EXPECT_EQ(surface(of_array(create(no_surface).as<uint64_t>())).status, kInvalid);
}

// A kernel may still read what an object names: the memory stays, and stays charged.
TEST_F(WorkerArrays, AnArrayInUseIsKept) {
  start_with();
  const uint64_t before = free_memory();
  const uint64_t array = create(kPlain).as<uint64_t>();
  const uint64_t with_array = free_memory();
  ASSERT_LT(with_array, before);
  const uint64_t t = texture(of_array(array)).as<uint64_t>();
  const uint64_t u = surface(of_array(array)).as<uint64_t>();
  EXPECT_EQ(destroy(array), CUDA_SUCCESS);
  EXPECT_EQ(texture(of_array(array)).status, kBadHandle);
  EXPECT_EQ(copy(whole(array)), kBadHandle);
  EXPECT_EQ(free_memory(), with_array);
  EXPECT_EQ(end_texture(t), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), with_array);
  EXPECT_EQ(end_surface(u), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), before);
}

TEST_F(WorkerArrays, MipmappedArraysAreCheckedAndCharged) {
  start_with(8u << 20);
  const uint64_t before = free_memory();
  auto d = kPlain;
  d.Width = 0;
  EXPECT_EQ(create_mipmap(d, 3).status, kInvalid);
  d = kPlain, d.Flags = ~0u;
  EXPECT_EQ(create_mipmap(d, 3).status, CUDA_ERROR_NOT_SUPPORTED);
  d = kPlain, d.Width = d.Height = d.Depth = 1u << 20;
  EXPECT_EQ(create_mipmap(d, ~0u).status, CUDA_ERROR_OUT_OF_MEMORY);
  d = kPlain, d.Width = d.Height = 1280;  // 6.25 MiB, and a third more in all levels
  EXPECT_EQ(create_mipmap(d, ~0u).status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), before);
  const uint64_t mipmap = create_mipmap(kPlain, ~0u).as<uint64_t>();
  ASSERT_EQ(SLUICE_HANDLE_KIND(mipmap), static_cast<uint32_t>(SLUICE_HANDLE_MIPMAP));
  EXPECT_LT(free_memory(), before);
  const uint64_t first = level(mipmap, 0).as<uint64_t>(), last = level(mipmap, 4).as<uint64_t>();
  EXPECT_EQ(level(mipmap, 0).as<uint64_t>(), first) << "the same each time";
  EXPECT_NE(last, first);
  EXPECT_EQ(level(mipmap, 5).status, kInvalid);
  EXPECT_EQ(level(mipmap, ~0u).status, kInvalid);
  EXPECT_EQ(level(first, 0).status, kBadHandle) << "a handle of another kind";
  EXPECT_EQ(level(mipmap ^ 2, 0).status, kBadHandle);
  EXPECT_EQ(destroy(first), kBadHandle) << "a level is its array's";
  EXPECT_EQ(destroy(mipmap), kBadHandle);
  EXPECT_EQ(destroy_mipmap(first), kBadHandle);
  // A level is copied like an array of its size, and no further.
  auto c = whole(first);
  EXPECT_EQ(copy(c), CUDA_SUCCESS);
  c = whole(last);
  EXPECT_EQ(copy(c), kInvalid);
  c.width = 4, c.height = 1;
  EXPECT_EQ(copy(c), CUDA_SUCCESS);
  EXPECT_EQ(destroy_mipmap(mipmap), CUDA_SUCCESS);
  EXPECT_EQ(destroy_mipmap(mipmap), kBadHandle);
  EXPECT_EQ(copy(whole(first)), kBadHandle) << "levels end with it";
  EXPECT_EQ(free_memory(), before);
}

TEST_F(WorkerArrays, AMipmappedArrayInUseIsKept) {
  start_with();
  const uint64_t before = free_memory();
  const uint64_t mipmap = create_mipmap(kPlain, 2).as<uint64_t>();
  const uint64_t with_array = free_memory();
  const uint64_t second = level(mipmap, 1).as<uint64_t>();
  const uint64_t t = texture(of_mipmap(mipmap), normalized()).as<uint64_t>();
  const uint64_t u = surface(of_array(second)).as<uint64_t>();
  ASSERT_NE(t, 0u);
  ASSERT_NE(u, 0u);
  EXPECT_EQ(destroy_mipmap(mipmap), CUDA_SUCCESS);
  EXPECT_EQ(texture(of_mipmap(mipmap), normalized()).status, kBadHandle);
  EXPECT_EQ(free_memory(), with_array);
  EXPECT_EQ(end_texture(t), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), with_array) << "a surface names one of its levels";
  EXPECT_EQ(end_surface(u), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), before);
}

TEST_F(WorkerArrays, ViewsStayInside) {
  start_with();
  auto layered = kPlain;
  layered.Depth = 3, layered.Flags = CUDA_ARRAY3D_LAYERED;
  const uint64_t array = create(layered).as<uint64_t>();
  const uint64_t mipmap = create_mipmap(kPlain, 3).as<uint64_t>();
  CUDA_RESOURCE_VIEW_DESC whole{};
  whole.format = CU_RES_VIEW_FORMAT_UINT_1X32;
  whole.width = 16, whole.height = 8;
  CUDA_RESOURCE_VIEW_DESC view = whole;
  const auto of_layers = [&](int status) {
    EXPECT_EQ(texture(of_array(array), normalized(), &view).status, status);
    view = whole;
  };
  const auto of_levels = [&](int status) {
    EXPECT_EQ(texture(of_mipmap(mipmap), normalized(), &view).status, status);
    view = whole;
  };
  of_levels(CUDA_SUCCESS);
  view.lastLayer = 2, of_layers(CUDA_SUCCESS);
  view.lastLayer = 3, of_layers(kInvalid);
  view.firstLayer = 2, view.lastLayer = 1, of_layers(kInvalid);
  view.firstLayer = view.lastLayer = ~0u, of_layers(kInvalid);
  view.lastMipmapLevel = 1, of_layers(kInvalid);
  view.lastMipmapLevel = 3, of_levels(CUDA_SUCCESS);  // as NVIDIA's driver
  view.firstMipmapLevel = view.lastMipmapLevel = 3, of_levels(kInvalid);
  view.firstMipmapLevel = 2, view.lastMipmapLevel = 1, of_levels(kInvalid);
  view.firstMipmapLevel = view.lastMipmapLevel = ~0u, of_levels(kInvalid);
  view.width = kBeyond, of_levels(kInvalid);
  view.height = kBeyond, of_levels(kInvalid);
  view.depth = kBeyond, of_levels(kInvalid);
  view.format = static_cast<CUresourceViewFormat>(-1), of_levels(kInvalid);
  view.format = static_cast<CUresourceViewFormat>(0x23), of_levels(kInvalid);
  const uint64_t memory = alloc(4096).as<uint64_t>();
  CUDA_RESOURCE_DESC linear{};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4096};
  EXPECT_EQ(texture(linear, {}, &view).status, kInvalid) << "memory has no views";
}

TEST_F(WorkerArrays, BoxesStayInside) {
  start_with();
  const uint64_t array = create(kPlain).as<uint64_t>(), memory = alloc(4096).as<uint64_t>();
  auto c = whole(array);
  int n = 0;
  const auto refused = [&](int status) {
    SCOPED_TRACE(++n);
    EXPECT_EQ(copy(c), status);
    c = whole(array);
  };
  EXPECT_EQ(copy(c), CUDA_SUCCESS);
  c.width = 65, refused(kInvalid);
  c.height = 9, refused(kInvalid);
  c.depth = 2, refused(kInvalid);
  c.dst.x = 4, refused(kInvalid);
  c.dst.y = 1, refused(kInvalid);
  c.dst.z = 1, refused(kInvalid);
  c.dst.x = kBeyond, refused(kInvalid);
  c.dst.y = kBeyond, refused(kInvalid);
  c.dst.z = kBeyond, refused(kInvalid);
  c.height = kBeyond, refused(kInvalid);
  c.depth = kBeyond, refused(kInvalid);
  c.src.pitch = 63, refused(kInvalid);
  c.src.pitch = kBeyond, refused(kInvalid);
  c.src.x = 4, refused(kInvalid);
  c.dst.at = array ^ 2, refused(kBadHandle);
  c.dst.at = context, refused(kBadHandle);
  c.stream = 0x7777, refused(kBadHandle);
  const auto from_device = [&](uint64_t at) {
    c.src.at = at;
    c.src.kind = SLUICE_COPY_DEVICE;
  };
  from_device(memory), refused(CUDA_SUCCESS);
  from_device(memory + 4096 - 511), refused(kInvalid);
  from_device(reinterpret_cast<uint64_t>(&memory)), refused(kInvalid);
  c.dst = c.src, refused(kInvalid);  // no array
  c.width = 0, refused(CUDA_SUCCESS);
}

TEST_F(WorkerArrays, ABoxOutsideOfTheRegionEndsTheSession) {
  start_with();
  auto c = whole(create(kPlain).as<uint64_t>());
  c.src.at = 1ull << 50;
  b->post(SLUICE_CALL_COPY_BOX, c, context);
  EXPECT_NE(b->wait_exit(30000), -1);
}

TEST_F(WorkerArrays, AContextTakesItsArraysAlong) {
  start_with();
  const uint64_t before = free_memory();
  const uint64_t array = create(kPlain).as<uint64_t>();
  const uint64_t second =
      generic(kOpcode_cuCtxCreate_v2, {raw<uint8_t>(1), raw<uint32_t>(0), raw<int>(0)})
          .as<uint64_t>();
  ASSERT_NE(second, 0u);
  EXPECT_EQ(destroy(array, second), CUDA_ERROR_INVALID_CONTEXT);
  const uint64_t first = context;
  context = second;
  EXPECT_EQ(texture(of_array(array)).status, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(copy(whole(array)), CUDA_ERROR_INVALID_CONTEXT);
  const uint64_t other = create(kPlain).as<uint64_t>();
  texture(of_array(other));
  EXPECT_EQ(destroy(other), CUDA_SUCCESS);
  create(kPlain);
  EXPECT_EQ(generic(kOpcode_cuCtxDestroy_v2, {raw(second)}).status, CUDA_SUCCESS);
  context = first;
  EXPECT_EQ(destroy(array), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), before);
}

}  // namespace
}  // namespace sluice::test
