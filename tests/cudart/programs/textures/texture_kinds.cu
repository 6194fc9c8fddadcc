// SPDX-License-Identifier: Apache-2.0
// Layered and cube textures, gathers, levels, address modes; surfaces of every kind.
#include <cmath>
#include <cstring>
#include <vector>
#include "../check.h"
__global__ void layered(cudaTextureObject_t t, float* o, int w, int h) {
  int x = threadIdx.x, y = threadIdx.y, l = blockIdx.x;
  o[(l * h + y) * w + x] = tex2DLayered<float>(t, x + 0.5f, y + 0.5f, l);
}
__global__ void one_layered(cudaTextureObject_t t, float2* o, int w) {
  o[blockIdx.x * w + threadIdx.x] = tex1DLayered<float2>(t, (threadIdx.x + 0.5f) / w, blockIdx.x);
}
__global__ void gather(cudaTextureObject_t t, float4* o) {
  o[0] = tex2Dgather<float4>(t, 2.0f, 2.0f, 0);
  o[1] = tex2Dgather<float4>(t, 2.0f, 2.0f, 1);
}
__global__ void cube_layered(cudaTextureObject_t t, float* o) {
  const float d[6][3] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
  int f = threadIdx.x;
  o[blockIdx.x * 6 + f] = texCubemapLayered<float>(t, d[f][0], d[f][1], d[f][2], blockIdx.x);
}
__global__ void grads(cudaTextureObject_t t, float* o) {
  o[0] = tex2DLod<float>(t, 0.5f, 0.5f, 1.0f);
  o[1] = tex2DGrad<float>(t, 0.5f, 0.5f, make_float2(4.0f / 16, 0), make_float2(0, 4.0f / 16));
  o[2] = tex2DLod<float>(t, 0.5f, 0.5f, 0.5f);
}
__global__ void addr(cudaTextureObject_t t, float* o) {
  int i = threadIdx.x;
  o[i] = tex1D<float>(t, (i - 8 + 0.5f) / 8);
}
__global__ void chars(cudaTextureObject_t t, float4* o) {
  o[threadIdx.x] = tex2D<float4>(t, threadIdx.x + 0.5f, 0.5f);
}
__global__ void s1(cudaSurfaceObject_t s, int* o) {
  int i = threadIdx.x;
  surf1Dwrite(i * 3, s, i * 4);
  __syncthreads();
  o[i] = surf1Dread<int>(s, (31 - i) * 4) +
         surf1Dread<int>(s, (i + 100) * 4, cudaBoundaryModeZero) +
         surf1Dread<int>(s, (i + 100) * 4, cudaBoundaryModeClamp);
}
__global__ void s3(cudaSurfaceObject_t s, short2* o) {
  int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
  surf3Dwrite(make_short2(x + y, z), s, x * 4, y, z);
  __syncthreads();
  o[(z * 4 + y) * 4 + x] = surf3Dread<short2>(s, (3 - x) * 4, y, 3 - z);
}
__global__ void sl(cudaSurfaceObject_t s, uchar4* o) {
  int x = threadIdx.x, l = blockIdx.x;
  uchar4 v;
  surf2DLayeredread(&v, s, x * 4, 1, l);
  v.x += 1;
  surf2DLayeredwrite(v, s, x * 4, 0, l);
  o[l * 8 + x] = surf2DLayeredread<uchar4>(s, x * 4, 0, l);
}
__global__ void sc(cudaSurfaceObject_t s, float* o) {
  int f = threadIdx.x;
  surfCubemapwrite(f * 2.0f, s, 4, 1, f);
  o[f] = surfCubemapread<float>(s, 4, 1, f);
}
template <class T>
cudaArray_t array(cudaExtent e, unsigned flags, const std::vector<T>& v) {
  cudaArray_t a;
  cudaChannelFormatDesc d = cudaCreateChannelDesc<T>();
  OK(cudaMalloc3DArray(&a, &d, e, flags));
  if (v.empty()) return a;
  cudaMemcpy3DParms p{};
  size_t w = e.width, h = e.height ? e.height : 1, l = e.depth ? e.depth : 1;
  p.srcPtr = make_cudaPitchedPtr((void*)v.data(), w * sizeof(T), w, h);
  p.dstArray = a;
  p.extent = make_cudaExtent(w, h, l);
  p.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&p));
  return a;
}
cudaTextureObject_t tex(cudaArray_t a, cudaTextureFilterMode f, bool norm,
                        cudaTextureAddressMode m = cudaAddressModeClamp,
                        cudaTextureReadMode rm = cudaReadModeElementType) {
  cudaResourceDesc r{};
  r.resType = cudaResourceTypeArray;
  r.res.array.array = a;
  cudaTextureDesc t{};
  t.filterMode = f;
  t.normalizedCoords = norm;
  t.readMode = rm;
  for (auto& x : t.addressMode) x = m;
  t.borderColor[0] = 9;
  cudaTextureObject_t o;
  OK(cudaCreateTextureObject(&o, &r, &t, nullptr));
  return o;
}
cudaSurfaceObject_t surf(cudaArray_t a) {
  cudaResourceDesc r{};
  r.resType = cudaResourceTypeArray;
  r.res.array.array = a;
  cudaSurfaceObject_t s;
  OK(cudaCreateSurfaceObject(&s, &r));
  return s;
}
int main() {
  float* o;
  OK(cudaMalloc(&o, 65536));
  std::vector<float> g(16384);
  auto fetch = [&](size_t n) { OK(cudaMemcpy(g.data(), o, n * 4, cudaMemcpyDeviceToHost)); };
  std::vector<float> v(8 * 4 * 3);
  for (size_t i = 0; i < v.size(); ++i) v[i] = (float)i;
  auto a = array<float>(make_cudaExtent(8, 4, 3), cudaArrayLayered, v);
  auto t = tex(a, cudaFilterModePoint, false);
  layered<<<3, dim3(8, 4)>>>(t, o, 8, 4);
  fetch(96);
  int wrong = 0;
  for (int i = 0; i < 96; ++i) wrong += g[i] != i;
  CHECK(wrong == 0);
  cudaResourceDesc rd{};
  OK(cudaGetTextureObjectResourceDesc(&rd, t));
  CHECK(rd.res.array.array == a);
  cudaTextureDesc td{};
  OK(cudaGetTextureObjectTextureDesc(&td, t));
  cudaChannelFormatDesc cd;
  OK(cudaGetChannelDesc(&cd, a));
  CHECK(cd.x == 32 && cd.f == cudaChannelFormatKindFloat);
  cudaExtent ex;
  unsigned fl;
  OK(cudaArrayGetInfo(&cd, &ex, &fl, a));
  CHECK(fl == cudaArrayLayered && ex.depth == 3);
  std::vector<float2> v2(16 * 4);
  for (int i = 0; i < 64; ++i) v2[i] = make_float2(i, -i);
  auto a2 = array<float2>(make_cudaExtent(16, 0, 4), cudaArrayLayered, v2);
  one_layered<<<4, 16>>>(tex(a2, cudaFilterModeLinear, true), (float2*)o, 16);
  fetch(128);
  for (int i = 0; i < 64; ++i) CHECK(g[2 * i] == i && g[2 * i + 1] == -i);
  std::vector<float> v3(16);
  for (int i = 0; i < 16; ++i) v3[i] = i;
  auto a3 = array<float>(make_cudaExtent(4, 4, 0), cudaArrayTextureGather, v3);
  gather<<<1, 1>>>(tex(a3, cudaFilterModePoint, false), (float4*)o);
  fetch(8);
  CHECK(g[0] == 9 && g[1] == 10 && g[2] == 6 && g[3] == 5);
  CHECK(g[4] == 0);
  std::vector<float> v4(2 * 2 * 12);
  for (int i = 0; i < 48; ++i) v4[i] = i / 4;
  auto a4 = array<float>(make_cudaExtent(2, 2, 12), cudaArrayLayered | cudaArrayCubemap, v4);
  cube_layered<<<2, 6>>>(tex(a4, cudaFilterModePoint, true), o);
  fetch(12);
  for (int i = 0; i < 12; ++i) CHECK(g[i] == i);
  for (auto [mode, name] : {std::pair<cudaTextureAddressMode, int>{cudaAddressModeWrap, 0},
                            {cudaAddressModeMirror, 1},
                            {cudaAddressModeBorder, 2},
                            {cudaAddressModeClamp, 3}}) {
    std::vector<float> v5(8);
    for (int i = 0; i < 8; ++i) v5[i] = i + 1;
    auto a5 = array<float>(make_cudaExtent(8, 0, 0), 0, v5);
    addr<<<1, 24>>>(tex(a5, cudaFilterModePoint, true, mode), o);
    fetch(24);
    for (int i = 0; i < 24; ++i) {
      int k = i - 8;
      float w = name == 0   ? (k + 8) % 8 + 1
                : name == 1 ? (k < 0   ? -1 - k
                               : k > 7 ? 15 - k
                                       : k) +
                                  1
                : name == 2 ? (k < 0 || k > 7 ? 9 : k + 1)
                            : (k < 0   ? 0
                               : k > 7 ? 7
                                       : k) +
                                  1;
      CHECK(g[i] == w);
    }
  }
  cudaMipmappedArray_t mip;
  cudaChannelFormatDesc fd = cudaCreateChannelDesc<float>();
  OK(cudaMallocMipmappedArray(&mip, &fd, make_cudaExtent(16, 16, 0), 3));
  for (int l = 0; l < 3; ++l) {
    cudaArray_t lv;
    OK(cudaGetMipmappedArrayLevel(&lv, mip, l));
    std::vector<float> f((16 >> l) * (16 >> l), l * 10.0f + 1);
    OK(cudaMemcpy2DToArray(lv, 0, 0, f.data(), (16 >> l) * 4, (16 >> l) * 4, 16 >> l,
                           cudaMemcpyHostToDevice));
  }
  cudaResourceDesc mr2{};
  mr2.resType = cudaResourceTypeMipmappedArray;
  mr2.res.mipmap.mipmap = mip;
  cudaTextureDesc mt{};
  mt.normalizedCoords = 1;
  mt.filterMode = cudaFilterModeLinear;
  mt.mipmapFilterMode = cudaFilterModeLinear;
  mt.maxMipmapLevelClamp = 2;
  cudaTextureObject_t mo;
  OK(cudaCreateTextureObject(&mo, &mr2, &mt, nullptr));
  grads<<<1, 1>>>(mo, o);
  fetch(3);
  CHECK(g[0] == 11 && g[1] == 21 && g[2] == 6);
  std::vector<uchar4> v6(8 * 8);
  for (int i = 0; i < 64; ++i) v6[i] = make_uchar4(i * 3, 255, 0, 51);
  auto a6 = array<uchar4>(make_cudaExtent(8, 8, 0), 0, v6);
  chars<<<1, 8>>>(
      tex(a6, cudaFilterModePoint, false, cudaAddressModeClamp, cudaReadModeNormalizedFloat),
      (float4*)o);
  fetch(32);
  CHECK(g[1] == 1 && std::fabs(g[3] - 0.2f) < 1e-6 && std::fabs(g[4] - 3 / 255.0f) < 1e-6);
  std::vector<char2> v7(8, make_char2(-128, 127));
  auto a7 = array<char2>(make_cudaExtent(8, 1, 0), 0, v7);
  (void)a7;
  auto b1 = array<int>(make_cudaExtent(32, 0, 0), cudaArraySurfaceLoadStore, std::vector<int>{});
  s1<<<1, 32>>>(surf(b1), (int*)o);
  std::vector<int> gi(64);
  OK(cudaMemcpy(gi.data(), o, 128, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) CHECK(gi[i] == (31 - i) * 3 + 93);
  auto b3 =
      array<short2>(make_cudaExtent(4, 4, 4), cudaArraySurfaceLoadStore, std::vector<short2>{});
  s3<<<1, dim3(4, 4, 4)>>>(surf(b3), (short2*)o);
  std::vector<short2> gs(64);
  OK(cudaMemcpy(gs.data(), o, 256, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) CHECK(gs[i].x == 3 - i % 4 + i / 4 % 4 && gs[i].y == 3 - i / 16);
  std::vector<uchar4> vl(8 * 2 * 3);
  for (size_t i = 0; i < vl.size(); ++i) vl[i] = make_uchar4(i, 1, 2, 3);
  auto bl =
      array<uchar4>(make_cudaExtent(8, 2, 3), cudaArrayLayered | cudaArraySurfaceLoadStore, vl);
  sl<<<3, 8>>>(surf(bl), (uchar4*)o);
  std::vector<uchar4> gl(24);
  OK(cudaMemcpy(gl.data(), o, 96, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 24; ++i) CHECK(gl[i].x == (i / 8 * 2 + 1) * 8 + i % 8 + 1 && gl[i].w == 3);
  auto bc = array<float>(make_cudaExtent(4, 4, 6), cudaArrayCubemap | cudaArraySurfaceLoadStore,
                         std::vector<float>{});
  auto so = surf(bc);
  sc<<<1, 6>>>(so, o);
  fetch(6);
  for (int i = 0; i < 6; ++i) CHECK(g[i] == i * 2);
  cudaResourceDesc sd{};
  OK(cudaGetSurfaceObjectResourceDesc(&sd, so));
  CHECK(sd.res.array.array == bc);
  size_t lw = 0;
  OK(cudaDeviceGetTexture1DLinearMaxWidth(&lw, &fd, 0));
  CHECK(lw >= 1 << 27);
  OK(cudaDeviceSynchronize());
  return result();
}
