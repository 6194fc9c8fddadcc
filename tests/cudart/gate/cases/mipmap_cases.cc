// SPDX-License-Identifier: Apache-2.0
// Mipmapped arrays, cube maps and views of arrays: what they are made of, copies into their levels
// and faces, what kernels fetch from them. No case hangs on how a GPU rounds: fetches are in the
// middle of texels and of the way between levels.
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/cudart/gate/cases/cases.h"

using namespace sluice::cudart;

namespace {

constexpr int kFloat = 2, kPoint = 0, kLinear = 1, kClampMode = 1, kAsElements = 0;
constexpr int kOneFloat = 0x16;  // of a view
constexpr unsigned kMipLayered = 1, kMipSurfaces = 2, kMipCubemap = 4;

cudaChannelFormatDesc one_float() { return cudaCreateChannelDesc(32, 0, 0, 0, kFloat); }

cudaTextureDesc normalized(int filter, int between_levels) {
  cudaTextureDesc d = {};
  for (int& mode : d.addressMode) mode = kClampMode;
  d.filterMode = filter;
  d.mipmapFilterMode = between_levels;
  d.normalizedCoords = 1;
  d.maxMipmapLevelClamp = 100;
  return d;
}

// A fetch by one of the kernels, of a float.
template <class... Coordinates>
float fetched(const void* kernel, cudaTextureObject_t texture, Coordinates... at) {
  Memory<float> out(1);
  float* to = out.at();
  void* arguments[] = {&texture, &at..., &to};
  OK(cudaLaunchKernel(kernel, dim3{1, 1, 1}, dim3{1, 1, 1}, arguments, 0, nullptr));
  return out[0];
}

class Texture {
 public:
  Texture(const cudaResourceDesc& of, const cudaTextureDesc& how,
          const cudaResourceViewDesc* view = nullptr) {
    OK(cudaCreateTextureObject(&object_, &of, &how, view));
  }
  ~Texture() { OK(cudaDestroyTextureObject(object_)); }
  Texture(const Texture&) = delete;
  operator cudaTextureObject_t() const { return object_; }

 private:
  cudaTextureObject_t object_ = 0;
};

// 16 by 8 texels and three levels, of 10, 20 and 30.
class MipmapCases : public Cases {
 protected:
  void SetUp() override {
    Cases::SetUp();
    const cudaChannelFormatDesc format = one_float();
    OK(cudaMallocMipmappedArray(&mipmap_, &format, cudaExtent{16, 8, 0}, 3, 0));
    for (unsigned k = 0; k < 3; ++k) fill(level(k), 16 >> k, 8 >> k, 10.0f * (k + 1));
  }
  void TearDown() override {
    OK(cudaFreeMipmappedArray(mipmap_));
    Cases::TearDown();
  }
  cudaArray_t level(unsigned k) {
    cudaArray_t array = nullptr;
    OK(cudaGetMipmappedArrayLevel(&array, mipmap_, k));
    return array;
  }
  static void fill(cudaArray_t array, size_t width, size_t height, float value) {
    const std::vector<float> texels(width * height, value);
    OK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), width * 4, width * 4, height,
                           cudaMemcpyHostToDevice));
  }
  cudaResourceDesc resource() const {
    cudaResourceDesc r = {};
    r.resType = cudaResourceTypeMipmappedArray;
    r.res.mipmap.mipmap = mipmap_;
    return r;
  }
  static float at_level(cudaTextureObject_t texture, float lod) {
    return fetched(&host_fetch_level, texture, 0.5f, 0.5f, lod);
  }
  // Levels 1 and 2 alone.
  static cudaResourceViewDesc two_levels() {
    cudaResourceViewDesc view = {};
    view.format = kOneFloat;
    view.width = 16;  // the array's
    view.height = 8;
    view.firstMipmapLevel = 1;
    view.lastMipmapLevel = 2;
    return view;
  }
  cudaMipmappedArray_t mipmap_ = nullptr;
};

TEST_F(MipmapCases, LevelsAreHalvesOfEachOther) {
  for (unsigned k = 0; k < 3; ++k) {
    cudaExtent extent = {};
    cudaChannelFormatDesc format = {};
    unsigned flags = 4711;
    OK(cudaArrayGetInfo(&format, &extent, &flags, level(k)));
    EXPECT_EQ(extent.width, 16u >> k);
    EXPECT_EQ(extent.height, 8u >> k);
    EXPECT_EQ(extent.depth, 0u);
    EXPECT_EQ(format.x, 32);
    EXPECT_EQ(flags, 0u);
  }
  cudaArray_t none = nullptr;
  REFUSED(cudaGetMipmappedArrayLevel(&none, mipmap_, 3));
  REFUSED(cudaGetMipmappedArrayLevel(nullptr, mipmap_, 0));
  EXPECT_EQ(none, nullptr);
}

TEST_F(MipmapCases, LevelsAreCopiedLikeArrays) {
  std::vector<float> texels(8 * 4), back(8 * 4);
  std::iota(texels.begin(), texels.end(), 1.0f);
  OK(cudaMemcpy2DToArray(level(1), 0, 0, texels.data(), 32, 32, 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2DFromArray(back.data(), 32, level(1), 0, 0, 32, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(back, texels);
  float one = 0;
  OK(cudaMemcpy2DFromArray(&one, 4, level(0), 60, 7, 4, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(one, 10);
  OK(cudaMemcpy2DArrayToArray(level(1), 0, 0, level(2), 0, 0, 16, 2, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy2DFromArray(back.data(), 32, level(1), 0, 0, 32, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(back[3], 30);
  EXPECT_EQ(back[4], texels[4]);
  REFUSED(cudaMemcpy2DToArray(level(1), 0, 0, texels.data(), 36, 36, 4, cudaMemcpyHostToDevice));
  REFUSED(cudaMemcpy2DToArray(level(2), 0, 0, texels.data(), 16, 16, 3, cudaMemcpyHostToDevice));
}

TEST_F(MipmapCases, TheNearestLevel) {
  const Texture texture(resource(), normalized(kPoint, kPoint));
  EXPECT_EQ(at_level(texture, 0), 10);
  EXPECT_EQ(at_level(texture, 0.375f), 10);
  EXPECT_EQ(at_level(texture, 0.625f), 20);
  EXPECT_EQ(at_level(texture, 1), 20);
  EXPECT_EQ(at_level(texture, 2), 30);
}
TEST_F(MipmapCases, LevelsBeyondTheEnds) {
  const Texture texture(resource(), normalized(kPoint, kPoint));
  EXPECT_EQ(at_level(texture, -5), 10);
  EXPECT_EQ(at_level(texture, 9), 30);
}
TEST_F(MipmapCases, BetweenTwoLevels) {
  const Texture texture(resource(), normalized(kPoint, kLinear));
  EXPECT_EQ(at_level(texture, 0), 10);
  EXPECT_EQ(at_level(texture, 0.5f), 15);
  EXPECT_EQ(at_level(texture, 1.25f), 22.5f);
  EXPECT_EQ(at_level(texture, 2), 30);
}
TEST_F(MipmapCases, LinearInTwoDirections) {
  const Texture texture(resource(), normalized(kLinear, kLinear));
  EXPECT_EQ(at_level(texture, 0), 10);
  EXPECT_EQ(at_level(texture, 1.5f), 25);
}
TEST_F(MipmapCases, ABias) {
  cudaTextureDesc how = normalized(kPoint, kPoint);
  how.mipmapLevelBias = 1;
  const Texture texture(resource(), how);
  EXPECT_EQ(at_level(texture, 0), 20);
  EXPECT_EQ(at_level(texture, 1), 30);
}
TEST_F(MipmapCases, Clamps) {
  cudaTextureDesc how = normalized(kPoint, kPoint);
  how.minMipmapLevelClamp = 1;
  const Texture least(resource(), how);
  EXPECT_EQ(at_level(least, 0), 20);
  EXPECT_EQ(at_level(least, 2), 30);
  how.minMipmapLevelClamp = 0;
  how.maxMipmapLevelClamp = 1;
  const Texture most(resource(), how);
  EXPECT_EQ(at_level(most, 0), 10);
  EXPECT_EQ(at_level(most, 2), 20);
}
TEST_F(MipmapCases, Gradients) {
  const Texture texture(resource(), normalized(kPoint, kPoint));
  const auto by_gradient = [&](float dx, float dy) {
    return fetched(&host_fetch_gradient, texture, 0.5f, 0.5f, dx, dy);
  };
  EXPECT_EQ(by_gradient(1.0f / 16, 1.0f / 8), 10);  // a texel
  EXPECT_EQ(by_gradient(2.0f / 16, 2.0f / 8), 20);
  EXPECT_EQ(by_gradient(4.0f / 16, 1.0f / 8), 30);  // the longer one counts
}
TEST_F(MipmapCases, WhatATextureReports) {
  cudaTextureDesc how = normalized(kLinear, kLinear);
  how.mipmapLevelBias = 0.5f;
  how.maxMipmapLevelClamp = 2;
  const Texture texture(resource(), how);
  cudaResourceDesc of = {};
  cudaTextureDesc is = {};
  OK(cudaGetTextureObjectResourceDesc(&of, texture));
  EXPECT_EQ(of.resType, cudaResourceTypeMipmappedArray);
  EXPECT_EQ(of.res.mipmap.mipmap, mipmap_);
  OK(cudaGetTextureObjectTextureDesc(&is, texture));
  EXPECT_EQ(is.mipmapFilterMode, kLinear);
  EXPECT_EQ(is.mipmapLevelBias, 0.5f);
  EXPECT_EQ(is.maxMipmapLevelClamp, 2);
  cudaResourceViewDesc view = {};
  OK(cudaGetTextureObjectResourceViewDesc(&view, texture));  // of no view
}
TEST_F(MipmapCases, AViewOfTwoLevels) {
  const cudaResourceViewDesc view = two_levels();
  const Texture texture(resource(), normalized(kPoint, kPoint), &view);
  EXPECT_EQ(at_level(texture, 0), 20);
  EXPECT_EQ(at_level(texture, 1), 30);
  EXPECT_EQ(at_level(texture, 5), 30);
  cudaResourceViewDesc is = {};
  OK(cudaGetTextureObjectResourceViewDesc(&is, texture));
  EXPECT_EQ(is.width, 16u);
  EXPECT_EQ(is.height, 8u);
  EXPECT_EQ(is.firstMipmapLevel, 1u);
  EXPECT_EQ(is.lastMipmapLevel, 2u);
}
TEST_F(MipmapCases, AViewOfAnotherFormat) {
  constexpr int kOneUnsigned32 = 0x0d;
  cudaResourceViewDesc view = two_levels();
  view.format = kOneUnsigned32;
  cudaTextureDesc how = normalized(kPoint, kPoint);
  how.readMode = kAsElements;
  const Texture texture(resource(), how, &view);
  Memory<unsigned> out(1);
  unsigned* to = out.at();
  cudaTextureObject_t object = texture;
  float x = 0.5f, y = 0.5f;
  void* arguments[] = {&object, &x, &y, &to};
  OK(cudaLaunchKernel(&host_fetch_bits, dim3{1, 1, 1}, dim3{1, 1, 1}, arguments, 0, nullptr));
  EXPECT_EQ(out[0], 0x41a00000u);  // 20 as a number behind the point
}
TEST_F(MipmapCases, WrongViews) {
  const cudaResourceDesc of = resource();
  const cudaTextureDesc how = normalized(kPoint, kPoint);
  cudaTextureObject_t texture = 0;
  const auto refused = [&](const cudaResourceViewDesc& view) {
    REFUSED(cudaCreateTextureObject(&texture, &of, &how, &view));
  };
  cudaResourceViewDesc view = two_levels();
  view.firstMipmapLevel = 3, refused(view);
  view = two_levels(), view.format = 0, refused(view);
  view = two_levels(), view.width = 8, view.height = 4, refused(view);  // of its first level
  view = two_levels(), view.depth = 1, refused(view);
  view = two_levels(), view.format = 99, refused(view);
  constexpr int kOneUnsigned8 = 0x01;
  view = two_levels(), view.format = kOneUnsigned8, refused(view);  // of another size
  EXPECT_EQ(texture, 0u);
}
TEST_F(MipmapCases, AnArrayThatATextureNamesMayGoFirst) {
  cudaTextureObject_t texture = 0;
  const cudaResourceDesc of = resource();
  const cudaTextureDesc how = normalized(kPoint, kPoint);
  OK(cudaCreateTextureObject(&texture, &of, &how, nullptr));
  OK(cudaFreeMipmappedArray(mipmap_));
  OK(cudaDestroyTextureObject(texture));
  const cudaChannelFormatDesc format = one_float();
  OK(cudaMallocMipmappedArray(&mipmap_, &format, cudaExtent{4, 4, 0}, 2, 0));
}
// As many levels as there can be, whatever is asked for.
TEST_F(MipmapCases, MoreLevelsThanThereAre) {
  const cudaChannelFormatDesc format = one_float();
  cudaMipmappedArray_t many = nullptr;
  OK(cudaMallocMipmappedArray(&many, &format, cudaExtent{16, 4, 0}, 100, 0));
  cudaArray_t last = nullptr;
  OK(cudaGetMipmappedArrayLevel(&last, many, 4));
  cudaExtent extent = {};
  OK(cudaArrayGetInfo(nullptr, &extent, nullptr, last));
  EXPECT_EQ(extent.width, 1u);
  EXPECT_EQ(extent.height, 1u);
  REFUSED(cudaGetMipmappedArrayLevel(&last, many, 5));
  OK(cudaFreeMipmappedArray(many));
}
TEST_F(MipmapCases, LinesAndVolumesAndLayers) {
  const cudaChannelFormatDesc format = one_float();
  struct {
    cudaExtent extent;
    unsigned flags;
    cudaExtent second;
  } const shapes[] = {{cudaExtent{32, 0, 0}, 0, cudaExtent{16, 0, 0}},
                      {cudaExtent{8, 8, 8}, 0, cudaExtent{4, 4, 4}},
                      {cudaExtent{8, 8, 3}, kMipLayered, cudaExtent{4, 4, 3}},
                      {cudaExtent{8, 8, 6}, kMipCubemap, cudaExtent{4, 4, 6}}};
  for (const auto& shape : shapes) {
    cudaMipmappedArray_t mipmap = nullptr;
    OK(cudaMallocMipmappedArray(&mipmap, &format, shape.extent, 2, shape.flags));
    cudaArray_t second = nullptr;
    OK(cudaGetMipmappedArrayLevel(&second, mipmap, 1));
    cudaExtent extent = {};
    OK(cudaArrayGetInfo(nullptr, &extent, nullptr, second));
    EXPECT_EQ(extent.width, shape.second.width);
    EXPECT_EQ(extent.height, shape.second.height);
    EXPECT_EQ(extent.depth, shape.second.depth);
    OK(cudaFreeMipmappedArray(mipmap));
  }
}

// 4 by 4 texels on each face: 100 * layer + 16 * face + texel.
class CubeCases : public Cases {
 protected:
  static constexpr size_t kSide = 4;

  static cudaArray_t cube(size_t layers, unsigned flags) {
    const cudaChannelFormatDesc format = one_float();
    cudaArray_t array = nullptr;
    OK(cudaMalloc3DArray(&array, &format, cudaExtent{kSide, kSide, 6 * layers},
                         kMipCubemap | flags));
    std::vector<float> texels(6 * layers * kSide * kSide);
    for (size_t i = 0; i < texels.size(); ++i)
      texels[i] = static_cast<float>(100 * (i / (6 * 16)) + i % (6 * 16));
    copy(array, texels.data(), layers, true);
    return array;
  }
  static void copy(cudaArray_t array, float* texels, size_t layers, bool to_array) {
    cudaMemcpy3DParms box = {};
    const cudaPitchedPtr memory = {texels, kSide * 4, kSide, kSide};
    (to_array ? box.dstArray : box.srcArray) = array;
    (to_array ? box.srcPtr : box.dstPtr) = memory;
    box.extent = cudaExtent{kSide, kSide, 6 * layers};
    box.kind = to_array ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&box));
  }
  static cudaResourceDesc resource(cudaArray_t array) {
    cudaResourceDesc r = {};
    r.resType = cudaResourceTypeArray;
    r.res.array.array = array;
    return r;
  }
  // The middle of a texel as a direction.
  struct Direction {
    float x, y, z;
  };
  static Direction towards(int face, size_t column, size_t row) {
    const float s = (2 * static_cast<float>(column) + 1) / kSide - 1;
    const float t = (2 * static_cast<float>(row) + 1) / kSide - 1;
    const Direction all[] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t},
                             {s, -1, -t}, {s, -t, 1},  {-s, -t, -1}};
    return all[face];
  }
};

TEST_F(CubeCases, EachTexelOfEachFace) {
  const cudaArray_t array = cube(1, 0);
  {
    const Texture texture(resource(array), normalized(kPoint, kPoint));
    for (int face = 0; face < 6; ++face)
      for (size_t texel = 0; texel < 16; texel += 5) {
        const Direction d = towards(face, texel % 4, texel / 4);
        EXPECT_EQ(fetched(&host_fetch_cube, texture, d.x, d.y, d.z),
                  static_cast<float>(face * 16) + static_cast<float>(texel));
      }
  }
  OK(cudaFreeArray(array));
}
TEST_F(CubeCases, DirectionsMayHaveAnyLength) {
  const cudaArray_t array = cube(1, 0);
  {
    const Texture texture(resource(array), normalized(kPoint, kPoint));
    const Direction d = towards(3, 1, 2);
    for (const float length : {0.25f, 8.0f})
      EXPECT_EQ(fetched(&host_fetch_cube, texture, d.x * length, d.y * length, d.z * length), 57);
  }
  OK(cudaFreeArray(array));
}
TEST_F(CubeCases, Layers) {
  const cudaArray_t array = cube(2, kMipLayered);
  {
    const Texture texture(resource(array), normalized(kPoint, kPoint));
    for (int layer = 0; layer < 2; ++layer) {
      const Direction d = towards(4, 3, 0);
      EXPECT_EQ(fetched(&host_fetch_cube_layer, texture, d.x, d.y, d.z, layer),
                100.0f * static_cast<float>(layer) + 67);
    }
  }
  OK(cudaFreeArray(array));
}
TEST_F(CubeCases, FilteredWithinAFace) {
  const cudaArray_t array = cube(1, 0);
  {
    const Texture texture(resource(array), normalized(kLinear, kPoint));
    EXPECT_EQ(fetched(&host_fetch_cube, texture, 1.0f, 0.0f, 0.0f), 7.5f);  // the face's middle
  }
  OK(cudaFreeArray(array));
}
TEST_F(CubeCases, SeamlessGoesOnAcrossAnEdge) {
  const cudaArray_t array = cube(1, 0);
  std::vector<float> texels(96);
  for (size_t i = 0; i < 96; ++i) texels[i] = i / 16 == 4 ? 8.0f : 0.0f;  // +z alone
  copy(array, texels.data(), 1, true);
  {
    cudaTextureDesc how = normalized(kLinear, kPoint);
    const Texture apart(resource(array), how);
    how.seamlessCubemap = 1;
    const Texture seamless(resource(array), how);
    // Just on the side of +x: at the edge, half of it is the other face's.
    EXPECT_EQ(fetched(&host_fetch_cube, apart, 1.0f, 0.0f, 0.9999f), 0);
    EXPECT_NEAR(fetched(&host_fetch_cube, seamless, 1.0f, 0.0f, 0.9999f), 4, 0.1);
  }
  OK(cudaFreeArray(array));
}
TEST_F(CubeCases, FacesAreCopiedAsSlices) {
  const cudaArray_t array = cube(1, 0);
  std::vector<float> back(96);
  copy(array, back.data(), 1, false);
  for (size_t i = 0; i < 96; ++i) EXPECT_EQ(back[i], static_cast<float>(i));
  OK(cudaFreeArray(array));
}
TEST_F(CubeCases, KernelsStoreIntoFaces) {
  const cudaArray_t array = cube(1, kMipSurfaces);
  const cudaResourceDesc of = resource(array);
  cudaSurfaceObject_t surface = 0;
  OK(cudaCreateSurfaceObject(&surface, &of));
  float value = 50;
  void* arguments[] = {&surface, &value};
  OK(cudaLaunchKernel(&host_store_faces, dim3{6, 1, 1}, dim3{4, 4, 1}, arguments, 0, nullptr));
  std::vector<float> back(96);
  copy(array, back.data(), 1, false);
  for (size_t i = 0; i < 96; ++i) EXPECT_EQ(back[i], static_cast<float>(50 + i / 16));
  OK(cudaDestroySurfaceObject(surface));
  OK(cudaFreeArray(array));
}
TEST_F(CubeCases, WrongOnes) {
  const cudaChannelFormatDesc format = one_float();
  cudaArray_t array = nullptr;
  REFUSED(cudaMalloc3DArray(&array, &format, cudaExtent{4, 8, 6}, kMipCubemap));
  REFUSED(cudaMalloc3DArray(&array, &format, cudaExtent{4, 4, 5}, kMipCubemap));
  REFUSED(cudaMalloc3DArray(&array, &format, cudaExtent{4, 4, 12}, kMipCubemap));
  REFUSED(cudaMalloc3DArray(&array, &format, cudaExtent{4, 4, 7}, kMipCubemap | kMipLayered));
  EXPECT_EQ(array, nullptr);
}

}  // namespace
