// SPDX-License-Identifier: Apache-2.0
// Kernels in the manner of public suites (Rodinia, Parboil, HeCBench, graph and tree programs),
// written anew for make_clang.py. Six wait for other blocks, in any order, and must be opaque:
// grid_sync, luby, seq_read, spin_flag, tree_summarize, triangular_solve.
#include "corpus.h"

#define TX ((int)__nvvm_read_ptx_sreg_tid_x())
#define TY ((int)__nvvm_read_ptx_sreg_tid_y())
#define TZ ((int)__nvvm_read_ptx_sreg_tid_z())
#define BX ((int)__nvvm_read_ptx_sreg_ctaid_x())
#define BY ((int)__nvvm_read_ptx_sreg_ctaid_y())
#define BZ ((int)__nvvm_read_ptx_sreg_ctaid_z())
#define DX ((int)__nvvm_read_ptx_sreg_ntid_x())
#define DY ((int)__nvvm_read_ptx_sreg_ntid_y())
#define GX ((int)__nvvm_read_ptx_sreg_nctaid_x())
#define GY ((int)__nvvm_read_ptx_sreg_nctaid_y())
#define SYNC __syncthreads()
#define FENCE __nvvm_membar_gl()
typedef unsigned char u8;
typedef long long i64;
__device__ inline int atomicAdd(int* p, int v) { return __nvvm_atom_add_gen_i(p, v); }
__device__ inline u32 atomicAdd(u32* p, u32 v) { return __nvvm_atom_add_gen_i((int*)p, v); }
__device__ inline float atomicAdd(float* p, float v) { return __nvvm_atom_add_gen_f(p, v); }
__device__ inline u64 atomicAdd(u64* p, u64 v) { return __nvvm_atom_add_gen_ll((i64*)p, v); }
__device__ inline int atomicCAS(int* p, int c, int v) { return __nvvm_atom_cas_gen_i(p, c, v); }
__device__ inline u32 atomicCAS(u32* p, u32 c, u32 v) {
  return __nvvm_atom_cas_gen_i((int*)p, c, v);
}
__device__ inline u64 atomicCAS(u64* p, u64 c, u64 v) {
  return __nvvm_atom_cas_gen_ll((i64*)p, c, v);
}
__device__ inline int atomicExch(int* p, int v) { return __nvvm_atom_xchg_gen_i(p, v); }
__device__ inline int atomicMin(int* p, int v) { return __nvvm_atom_min_gen_i(p, v); }
__device__ inline int atomicMax(int* p, int v) { return __nvvm_atom_max_gen_i(p, v); }
__device__ inline u32 atomicInc(u32* p, u32 v) { return __nvvm_atom_inc_gen_ui(p, v); }
__device__ inline int atomicOr(int* p, int v) { return __nvvm_atom_or_gen_i(p, v); }
__device__ inline float sqrtf_(float x) { return __nvvm_sqrt_rn_f(x); }
__device__ inline float exp2_(float x) { return __nvvm_ex2_approx_f(x); }
__device__ inline float fabs_(float x) { return __nvvm_fabs_f(x); }
__device__ inline float as_f(int i) {
  union {
    int i;
    float f;
  } u;
  u.i = i;
  return u.f;
}
__device__ inline int as_i(float f) {
  union {
    int i;
    float f;
  } u;
  u.f = f;
  return u.i;
}
__device__ inline u64 as_l(double f) {
  union {
    u64 i;
    double f;
  } u;
  u.f = f;
  return u.i;
}
__device__ inline double as_d(u64 i) {
  union {
    u64 i;
    double f;
  } u;
  u.i = i;
  return u.f;
}
__device__ inline float shfl_down(float v, int d) {
  return __nvvm_shfl_sync_down_f32(~0u, v, d, 31);
}
__device__ inline int shfl_up(int v, int d) { return __nvvm_shfl_sync_up_i32(~0u, v, d, 0); }
__device__ inline int shfl_xor(int v, int d) { return __nvvm_shfl_sync_bfly_i32(~0u, v, d, 31); }
__device__ inline int shfl(int v, int d) { return __nvvm_shfl_sync_idx_i32(~0u, v, d, 31); }
__device__ inline int lane() { return TX & 31; }
extern "C" {
struct Node {
  int start, count;
};
__global__ void bfs_step(const Node* nodes, const int* edges, u8* mask, u8* updating,
                         const u8* visited, int* cost, int n) {
  int t = BX * DX + TX;
  if (t < n && mask[t]) {
    mask[t] = 0;
    for (int i = nodes[t].start; i < nodes[t].start + nodes[t].count; i++) {
      int id = edges[i];
      if (!visited[id]) {
        cost[id] = cost[t] + 1;
        updating[id] = 1;
      }
    }
  }
}
__global__ void bfs_update(u8* mask, u8* updating, u8* visited, u8* over, int n) {
  int t = BX * DX + TX;
  if (t < n && updating[t]) {
    mask[t] = 1;
    visited[t] = 1;
    *over = 1;
    updating[t] = 0;
  }
}
__global__ void bfs_frontier(const int* row, const int* col, const int* q, int nq, int* nextq,
                             int* nnext, int* depth, int d) {
  for (int i = BX * DX + TX; i < nq; i += GX * DX) {
    int u = q[i];
    for (int e = row[u]; e < row[u + 1]; ++e) {
      int v = col[e];
      if (atomicCAS(&depth[v], -1, d) == -1) nextq[atomicAdd(nnext, 1)] = v;
    }
  }
}
__global__ void bfs_frontier_block(const int* row, const int* col, const int* q, int nq, int* nextq,
                                   int* nnext, int* depth, int d) {
  __shared__ int local[512];
  __shared__ int count, base;
  if (TX == 0) count = 0;
  SYNC;
  int i = BX * DX + TX;
  if (i < nq) {
    int u = q[i];
    for (int e = row[u]; e < row[u + 1]; ++e) {
      int v = col[e];
      if (atomicMin(&depth[v], d) > d) {
        int k = atomicAdd(&count, 1);
        if (k < 512)
          local[k] = v;
        else
          nextq[atomicAdd(nnext, 1)] = v;
      }
    }
  }
  SYNC;
  int c = count < 512 ? count : 512;
  if (TX == 0) base = atomicAdd(nnext, c);
  SYNC;
  for (int k = TX; k < c; k += DX) nextq[base + k] = local[k];
}
__global__ void hotspot(const float* power, const float* src, float* dst, int cols, int rows,
                        int border, float cap, float rx, float ry, float rz, int iters) {
  __shared__ float t[16][16], p[16][16], r[16][16];
  int small = 16 - iters * 2;
  int y0 = small * BY - border, x0 = small * BX - border;
  int y = y0 + TY, x = x0 + TX;
  int idx = cols * y + x;
  if (y >= 0 && y < rows && x >= 0 && x < cols) {
    t[TY][TX] = src[idx];
    p[TY][TX] = power[idx];
  }
  SYNC;
  bool done = false;
  for (int i = 0; i < iters; i++) {
    done = false;
    if (TX >= i + 1 && TX <= 14 - i && TY >= i + 1 && TY <= 14 - i && y > 0 && y < rows - 1 &&
        x > 0 && x < cols - 1) {
      done = true;
      r[TY][TX] =
          t[TY][TX] +
          cap * (p[TY][TX] + (t[TY + 1][TX] + t[TY - 1][TX] - 2 * t[TY][TX]) * ry +
                 (t[TY][TX + 1] + t[TY][TX - 1] - 2 * t[TY][TX]) * rx + (80.f - t[TY][TX]) * rz);
    }
    SYNC;
    if (i == iters - 1) break;
    if (done) t[TY][TX] = r[TY][TX];
    SYNC;
  }
  if (done) dst[idx] = r[TY][TX];
}
__global__ void pathfinder(int iteration, const int* wall, const int* src, int* dst, int cols,
                           int start, int border) {
  __shared__ int prev[256], res[256];
  int small = 256 - iteration * 2;
  int x = small * BX - border + TX;
  bool in = x >= 0 && x < cols;
  if (in) prev[TX] = src[x];
  SYNC;
  bool c = false;
  for (int i = 0; i < iteration; i++) {
    c = false;
    if (TX >= i + 1 && TX <= 254 - i && in) {
      c = true;
      int l = prev[TX - 1], u = prev[TX], r = prev[TX + 1];
      int m = l < u ? l : u;
      m = m < r ? m : r;
      res[TX] = m + wall[cols * (start + i) + x];
    }
    SYNC;
    if (i == iteration - 1) break;
    if (c) prev[TX] = res[TX];
    SYNC;
  }
  if (c) dst[x] = res[TX];
}
__global__ void lud_diagonal(float* m, int dim, int off) {
  __shared__ float s[16][16];
  int o = off * dim + off;
  for (int i = 0; i < 16; i++) {
    s[i][TX] = m[o + TX];
    o += dim;
  }
  SYNC;
  for (int i = 0; i < 15; i++) {
    if (TX > i) {
      for (int j = 0; j < i; j++) s[TX][i] -= s[TX][j] * s[j][i];
      s[TX][i] /= s[i][i];
    }
    SYNC;
    if (TX > i) {
      for (int j = 0; j < i + 1; j++) s[i + 1][TX] -= s[i + 1][j] * s[j][TX];
    }
    SYNC;
  }
  o = (off + 1) * dim + off;
  for (int i = 1; i < 16; i++) {
    m[o + TX] = s[i][TX];
    o += dim;
  }
}
__global__ void lud_internal(float* m, int dim, int off) {
  __shared__ float r[16][16], c[16][16];
  int gr = off + (BY + 1) * 16, gc = off + (BX + 1) * 16;
  r[TY][TX] = m[(off + TY) * dim + gc + TX];
  c[TY][TX] = m[(gr + TY) * dim + off + TX];
  SYNC;
  float s = 0;
  for (int i = 0; i < 16; i++) s += c[TY][i] * r[i][TX];
  m[(gr + TY) * dim + gc + TX] -= s;
}
__global__ void nw_1(const int* ref, int* mat, int cols, int penalty, int i, int width) {
  int bx = BX, x = bx, y = i - 1 - bx;
  int base = cols * 16 * y + 16 * x;
  __shared__ int t[17][17], rf[16][16];
  if (TX == 0) t[0][0] = mat[base];
  for (int k = 0; k < 16; k++) rf[k][TX] = ref[base + cols * (k + 1) + TX + 1];
  SYNC;
  t[TX + 1][0] = mat[base + cols * (TX + 1)];
  t[0][TX + 1] = mat[base + TX + 1];
  SYNC;
  for (int m = 0; m < 16; m++) {
    if (TX <= m) {
      int a = TX + 1, b = m - TX + 1;
      int v = t[b - 1][a - 1] + rf[b - 1][a - 1];
      int l = t[b][a - 1] - penalty, u = t[b - 1][a] - penalty;
      v = v > l ? v : l;
      v = v > u ? v : u;
      t[b][a] = v;
    }
    SYNC;
  }
  for (int m = 14; m >= 0; m--) {
    if (TX <= m) {
      int a = TX + 16 - m, b = 16 - TX;
      int v = t[b - 1][a - 1] + rf[b - 1][a - 1];
      int l = t[b][a - 1] - penalty, u = t[b - 1][a] - penalty;
      v = v > l ? v : l;
      v = v > u ? v : u;
      t[b][a] = v;
    }
    SYNC;
  }
  for (int k = 0; k < 16; k++) mat[base + cols * (k + 1) + TX + 1] = t[k + 1][TX + 1];
}
__global__ void kmeans_point(const float* f, int nf, int np, int nc, int* member,
                             const float* clusters) {
  int p = BX * DX + TX;
  if (p >= np) return;
  int best = -1;
  float bd = 3e38f;
  for (int c = 0; c < nc; c++) {
    float d = 0;
    for (int k = 0; k < nf; k++) {
      float t = f[p + k * np] - clusters[c * nf + k];
      d += t * t;
    }
    if (d < bd) {
      bd = d;
      best = c;
    }
  }
  member[p] = best;
}
__global__ void kmeans_update(const float* f, const int* member, float* sums, int* counts, int nf,
                              int np) {
  extern __shared__ float sh[];
  for (int i = TX; i < nf; i += DX) sh[i] = 0;
  SYNC;
  int p = BX * DX + TX;
  if (p < np) {
    for (int k = 0; k < nf; k++) atomicAdd(&sums[member[p] * nf + k], f[p * nf + k]);
    atomicAdd(&counts[member[p]], 1);
    atomicAdd(&sh[0], 1.f);
  }
  SYNC;
  if (TX == 0) atomicAdd(&sums[0], sh[0]);
}
__global__ void srad_reduce(int n, float* s1, float* s2) {
  __shared__ float a[512], b[512];
  int i = BX * 512 + TX;
  a[TX] = i < n ? s1[i] : 0;
  b[TX] = i < n ? s2[i] : 0;
  SYNC;
  for (int k = 2; k <= 512; k *= 2) {
    if ((TX + 1) % k == 0) {
      a[TX] += a[TX - k / 2];
      b[TX] += b[TX - k / 2];
    }
    SYNC;
  }
  if (TX == 511) {
    s1[BX] = a[511];
    s2[BX] = b[511];
  }
}
__global__ void gaussian_fan2(float* m, float* a, float* b, int n, int t) {
  int x = BX * DX + TX, y = BY * DY + TY;
  if (x >= n - 1 - t || y >= n - t) return;
  a[n * (x + 1 + t) + y + t] -= m[n * (x + 1 + t) + t] * a[n * t + y + t];
  if (y == 0) b[x + 1 + t] -= m[n * (x + 1 + t) + t] * b[t];
}
__global__ void lavamd(const float* x, const int* nb, const int* count, float* f, int par) {
  __shared__ float s[100];
  int bx = BX;
  for (int k = 0; k < 1 + count[bx]; k++) {
    int p = k == 0 ? bx : nb[bx * 26 + k - 1];
    for (int i = TX; i < par; i += DX) s[i] = x[p * par + i];
    SYNC;
    for (int i = TX; i < par; i += DX) {
      float v = 0, me = x[bx * par + i];
      for (int j = 0; j < par; j++) {
        float d = me - s[j];
        v += exp2_(-d * d) * d;
      }
      f[bx * par + i] += v;
    }
    SYNC;
  }
}
__global__ void particle_find(const float* cdf, const float* u, int* idx, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    int r = -1;
    for (int x = 0; x < n; x++)
      if (cdf[x] >= u[i]) {
        r = x;
        break;
      }
    if (r == -1) r = n - 1;
    idx[i] = r;
  }
}
__global__ void particle_sum(float* part, int n) {
  float s = 0;
  if (BX * DX + TX == 0) {
    int b = (n + DX - 1) / DX;
    for (int i = 0; i < b; i++) s += part[i];
    part[0] = s;
  }
}
__global__ void streamcluster(int n, int dim, int x, const float* p, const float* w,
                              const int* assign, const float* cost, const int* center, float* lower,
                              u8* sw) {
  extern __shared__ float c[];
  int t = BX + GX * BY;
  t = t * DX + TX;
  if (TX == 0)
    for (int i = 0; i < dim; i++) c[i] = p[i * n + x];
  SYNC;
  if (t >= n) return;
  float d = 0;
  for (int i = 0; i < dim; i++) {
    float q = p[i * n + t] - c[i];
    d += q * q;
  }
  d *= w[t];
  if (d < cost[t]) {
    sw[t] = 1;
    lower[n + t] += d - cost[t];
  } else
    lower[center[assign[t]]] += cost[t] - d;
}
__global__ void cfd_flux(int n, const int* nbr, const float* normals, const float* v, float* out) {
  int i = BX * DX + TX;
  if (i >= n) return;
  float d = v[i], mx = v[n + i], my = v[2 * n + i], e = v[3 * n + i];
  float f0 = 0, f1 = 0, f2 = 0, f3 = 0;
  for (int j = 0; j < 4; j++) {
    int nb = nbr[i + j * n];
    float nx = normals[i + j * n], ny = normals[i + (j + 4) * n];
    if (nb >= 0) {
      float d2 = v[nb], mx2 = v[n + nb];
      f0 += nx * (mx + mx2) + ny * my;
      f1 += d * d2;
      f2 += sqrtf_(fabs_(d - d2));
      f3 += e;
    } else if (nb == -1) {
      f1 += nx * e;
    } else if (nb == -2) {
      f2 += ny * e;
    }
  }
  out[i] = f0;
  out[n + i] = f1;
  out[2 * n + i] = f2;
  out[3 * n + i] = f3;
}
}
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
extern "C" {
__global__ void nearest(const float2* p, float* d, int n, float la, float lo) {
  int g = DX * (GX * BY + BX) + TX;
  if (g < n) d[g] = sqrtf_((la - p[g].x) * (la - p[g].x) + (lo - p[g].y) * (lo - p[g].y));
}
__global__ void nbody(const float4* p, float4* v, int n, float dt) {
  __shared__ float4 s[128];
  int i = BX * DX + TX;
  float4 me = p[i < n ? i : 0];
  float ax = 0, ay = 0, az = 0;
  for (int t = 0; t < n; t += 128) {
    if (t + TX < n) s[TX] = p[t + TX];
    SYNC;
    for (int k = 0; k < 128 && t + k < n; k++) {
      float dx = s[k].x - me.x, dy = s[k].y - me.y, dz = s[k].z - me.z;
      float r = dx * dx + dy * dy + dz * dz + 1e-4f;
      float q = 1.f / sqrtf_(r);
      q = q * q * q * s[k].w;
      ax += dx * q;
      ay += dy * q;
      az += dz * q;
    }
    SYNC;
  }
  if (i < n) {
    v[i].x += ax * dt;
    v[i].y += ay * dt;
    v[i].z += az * dt;
  }
}
// Parboil's manner
__global__ void histo_saturate(const u32* data, u8* bins, int n, int nb) {
  extern __shared__ u32 h[];
  for (int i = TX; i < nb; i += DX) h[i] = 0;
  SYNC;
  for (int i = BX * DX + TX; i < n; i += GX * DX) {
    u32 b = data[i] % nb;
    u32 old = h[b];
    if (old < 255) atomicAdd(&h[b], 1u);
  }
  SYNC;
  u32* g = (u32*)bins;
  for (int i = TX; i < nb; i += DX)
    if (h[i]) atomicAdd(&g[i], h[i]);
}
__global__ void histo_tagged(const u32* data, u32* bins,
                             int n) {  // a tag in the upper bits, retried until it sticks
  __shared__ u32 h[256];
  h[TX & 255] = 0;
  SYNC;
  u32 tag = (u32)TX << 27;
  for (int i = BX * DX + TX; i < n; i += GX * DX) {
    u32 b = data[i] & 255, c;
    volatile u32* s = h;
    do {
      c = s[b] & 0x07ffffffu;
      c = tag | (c + 1);
      s[b] = c;
    } while (s[b] != c);
  }
  SYNC;
  if (TX < 256) atomicAdd(&bins[TX], h[TX] & 0x07ffffffu);
}
__global__ void sgemm_nt(const float* A, int lda, const float* B, int ldb, float* C, int ldc, int k,
                         float al, float be) {
  float c[16];
  for (int i = 0; i < 16; i++) c[i] = 0;
  int mid = TY * 16 + TX;
  int m = BX * 128 + mid, n = BY * 16 + TX;
  __shared__ float bs[8][16];
  for (int i = 0; i < k; i += 8) {
    bs[TY][TX] = B[n + (i + TY) * ldb];
    SYNC;
    for (int j = 0; j < 8; j++) {
      float a = A[m + (i + j) * lda];
      for (int q = 0; q < 16; q++) c[q] += a * bs[j][q];
    }
    SYNC;
  }
  int t = ldc * BY * 16 + m;
  for (int i = 0; i < 16; i++) C[t + i * ldc] = C[t + i * ldc] * be + al * c[i];
}
__global__ void spmv_jds(float* y, const float* d, const int* idx, const int* perm, const float* x,
                         int dim, const int* ptr, const int* nzcnt) {
  int i = BX * DX + TX, w = i / 32;
  if (i < dim) {
    float s = 0;
    int b = nzcnt[w];
    for (int k = 0; k < b; k++) {
      int j = ptr[k] + i;
      s += d[j] * x[idx[j]];
    }
    y[perm[i]] = s;
  }
}
__global__ void spmv_vector(const int* rows, const int* cols, const float* v, const float* x,
                            float* y, int n) {
  __shared__ volatile float s[256];
  int t = BX * DX + TX, w = t / 32, l = t & 31;
  if (w < n) {
    float a = 0;
    for (int j = rows[w] + l; j < rows[w + 1]; j += 32) a += v[j] * x[cols[j]];
    s[TX] = a;
    for (int o = 16; o > 0; o /= 2) {
      if (l < o) s[TX] = a = a + s[TX + o];
      __nvvm_bar_warp_sync(~0u);
    }
    if (l == 0) y[w] = s[TX];
  }
}
__global__ void stencil7(float c0, float c1, const float* A, float* B, int nx, int ny, int nz) {
  int i = BX * DX + TX, j = BY * DY + TY;
  if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;
  float bot = A[i + nx * j], cur = A[i + nx * (j + ny)];
  for (int k = 1; k < nz - 1; k++) {
    float top = A[i + nx * (j + ny * (k + 1))];
    int q = i + nx * (j + ny * k);
    B[q] = (top + bot + A[q + 1] + A[q - 1] + A[q + nx] + A[q - nx]) * c1 - cur * c0;
    bot = cur;
    cur = top;
  }
}
__global__ void tpacf(const float4* p, const float* lim, u32* hist, int n) {
  __shared__ u32 h[20];
  __shared__ float4 c[256];
  if (TX < 20) h[TX] = 0;
  SYNC;
  float4 me = p[BX];
  for (int i = 0; i < n; i += 256) {
    if (i + TX < n) c[TX] = p[i + TX];
    SYNC;
    if (i + TX < n && i + TX > BX) {
      float d = me.x * c[TX].x + me.y * c[TX].y + me.z * c[TX].z;
      int lo = 0, hi = 20;
      while (hi > lo + 1) {
        int k = (lo + hi) / 2;
        if (d >= lim[k])
          hi = k;
        else
          lo = k;
      }
      atomicAdd(&h[hi - 1], 1u);
    }
    SYNC;
  }
  if (TX < 20) hist[BX * 20 + TX] = h[TX];
}
__constant__ float kq[512];
__global__ void mriq(int nk, int at, const float* x, float* qr, float* qi) {
  int t = BX * DX + TX;
  float r = qr[t], i = qi[t], px = x[t];
  for (int k = 0; k < 512 && at < nk; k++, at++) {
    float e = 6.28f * kq[k] * px;
    r += exp2_(e);
    i += exp2_(-e);
  }
  qr[t] = r;
  qi[t] = i;
}
__global__ void sad4(u32* blk, const u8* frame, const u8* ref, int w, int h) {
  int t = TX, mbx = BX, mby = BY;
  for (int by = 0; by < 4; by++)
    for (int bx = 0; bx < 4; bx++) {
      u32 s = 0;
      int ox = t % 33 - 16, oy = t / 33 - 16;
      for (int y = 0; y < 4; y++)
        for (int x = 0; x < 4; x++) {
          int fx = mbx * 16 + bx * 4 + x, fy = mby * 16 + by * 4 + y;
          int rx = fx + ox, ry = fy + oy;
          rx = rx < 0 ? 0 : rx >= w ? w - 1 : rx;
          ry = ry < 0 ? 0 : ry >= h ? h - 1 : ry;
          int d = frame[fy * w + fx] - ref[ry * w + rx];
          s += d < 0 ? -d : d;
        }
      blk[((mby * GX + mbx) * 16 + by * 4 + bx) * 1089 + t] = s;
    }
}
__global__ void lbm(const float* s, float* d, const int* flags, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  float f[9];
  for (int k = 0; k < 9; k++) f[k] = s[k * n + i];
  if (flags[i] & 1) {
    for (int k = 1; k < 9; k++) d[(k ^ 1) * n + ((i + k) % n)] = f[k];
    return;
  }
  float rho = 0;
  for (int k = 0; k < 9; k++) rho += f[k];
  if (flags[i] & 2) rho = 1;
  for (int k = 0; k < 9; k++) d[k * n + (i + k * 7) % n] = f[k] + (rho / 9 - f[k]) * 1.9f;
}
__global__ void cutcp(const float4* atoms, int na, float* grid, float h, float c2) {
  int x = BX * DX + TX, y = BY * DY + TY;
  float e = 0;
  for (int i = 0; i < na; i++) {
    float dx = x * h - atoms[i].x, dy = y * h - atoms[i].y;
    float r2 = dx * dx + dy * dy + atoms[i].z;
    if (r2 < c2) {
      float s = 1 - r2 / c2;
      e += atoms[i].w / sqrtf_(r2) * s * s;
    }
  }
  grid[y * GX * DX + x] = e;
}
// HeCBench's manner: atomics, locks, queues
__global__ void atomic_double(double* sum, const double* in, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    u64* p = (u64*)sum;
    u64 old = *p, a;
    do {
      a = old;
      old = atomicCAS(p, a, as_l(in[i] + as_d(a)));
    } while (a != old);
  }
}
__global__ void atomic_max_float(float* m, const float* in, int n) {
  for (int i = BX * DX + TX; i < n; i += GX * DX) {
    int* p = (int*)m;
    int old = *p, a;
    do {
      a = old;
      if (as_f(a) >= in[i]) break;
      old = atomicCAS(p, a, as_i(in[i]));
    } while (a != old);
  }
}
__global__ void mutex_sum(int* lock, float* sum, const float* in, int n) {
  __shared__ float c[256];
  float t = 0;
  for (int i = BX * DX + TX; i < n; i += GX * DX) t += in[i];
  c[TX] = t;
  SYNC;
  for (int i = DX / 2; i; i /= 2) {
    if (TX < i) c[TX] += c[TX + i];
    SYNC;
  }
  if (TX == 0) {
    while (atomicCAS(lock, 0, 1) != 0)
      ;
    FENCE;
    *sum += c[0];
    FENCE;
    atomicExch(lock, 0);
  }
}
struct Entry {
  u32 key;
  int value;
  int next;
};
__global__ void hash_chain(const u32* keys, const int* values, int n, int* heads, int* locks,
                           Entry* pool, int buckets) {
  for (int t = BX * DX + TX; t < n; t += GX * DX) {
    u32 h = keys[t] % buckets;
    for (int i = 0; i < 32; i++) {
      if (t % 32 == i) {
        while (atomicCAS(&locks[h], 0, 1) != 0)
          ;
        pool[t].key = keys[t];
        pool[t].value = values[t];
        pool[t].next = ((volatile int*)heads)[h];
        ((volatile int*)heads)[h] = t;
        FENCE;
        atomicExch(&locks[h], 0);
      }
    }
  }
}
__global__ void hash_open(u32* table, int cap, const u32* keys, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    u32 k = keys[i];
    u32 s = (k * 2654435761u) & (cap - 1);
    for (;;) {
      u32 p = atomicCAS(&table[s], 0xffffffffu, k);
      if (p == 0xffffffffu || p == k) return;
      s = (s + 1) & (cap - 1);
    }
  }
}
__global__ void hash_find(const u64* table, int cap, const u32* keys, u32* out, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    u32 k = keys[i], s = k & (cap - 1);
    while (true) {
      u64 e = table[s];
      if ((u32)(e >> 32) == k) {
        out[i] = (u32)e;
        return;
      }
      if ((u32)(e >> 32) == 0xffffffffu) {
        out[i] = 0;
        return;
      }
      s = (s + 1) & (cap - 1);
    }
  }
}
__global__ void hash_delete(u64* table, int cap, const u32* keys, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    u32 k = keys[i], s = k & (cap - 1);
    while (true) {
      if ((u32)(table[s] >> 32) == k) {
        table[s] = (u64)k << 32 | 0xffffffffu;
        return;
      }
      if ((u32)(table[s] >> 32) == 0xffffffffu) return;
      s = (s + 1) & (cap - 1);
    }
  }
}
__global__ void work_queue(const int* tasks, int* out, int* head, int n) {
  __shared__ int cur;
  while (true) {
    if (TX == 0) cur = atomicAdd(head, 1);
    SYNC;
    int t = cur;
    SYNC;
    if (t >= n) break;
    int w = tasks[t];
    for (int i = TX; i < w; i += DX) out[t * 256 + i] = w * i;
  }
}
__global__ void work_queue_block(const int* in, int* out, int* head, int n) {
  __shared__ int base;
  for (;;) {
    SYNC;
    if (TX == 0) base = atomicAdd(head, DX);
    SYNC;
    int i = base + TX;
    if (base >= n) return;
    if (i < n) out[i] = in[i] * 3;
  }
}
__global__ void work_queue_chunk(const int* in, int* out, int* head, int n, int chunk) {
  __shared__ int base;
  while (true) {
    if (TX == 0) base = atomicAdd(head, chunk);
    SYNC;
    int b = base;
    SYNC;
    if (b >= n) break;
    for (int i = b + TX; i < b + chunk && i < n; i += DX) out[i] = in[i] + 1;
  }
}
__global__ void work_queue_warp(const int* in, int* out, int* head, int n) {
  while (true) {
    int b;
    if (lane() == 0) b = atomicAdd(head, 32);
    b = shfl(b, 0);
    if (b >= n) return;
    int i = b + lane();
    if (i < n) out[i] = in[i] + 7;
  }
}
__global__ void work_push(int* queue, int* tail, int* head, int cap, int* out,
                          int limit) {  // takes and makes work
  for (int r = 0; r < limit; r++) {
    int h = atomicAdd(head, 1);
    if (h >= *(volatile int*)tail) {
      return;
    }
    int v = queue[h % cap];
    atomicAdd(out, v);
    if (v > 1) {
      int t = atomicAdd(tail, 1);
      queue[t % cap] = v / 2;
    }
  }
}
__global__ void last_block(const float* in, float* part, float* out, u32* done, int n) {
  __shared__ float s[256];
  __shared__ bool last;
  float t = 0;
  for (int i = BX * DX + TX; i < n; i += GX * DX) t += in[i];
  s[TX] = t;
  SYNC;
  for (int o = 128; o > 0; o >>= 1) {
    if (TX < o) s[TX] += s[TX + o];
    SYNC;
  }
  if (TX == 0) {
    part[BX] = s[0];
    FENCE;
    u32 v = atomicInc(done, GX);
    last = v == (u32)(GX - 1);
  }
  SYNC;
  if (last) {
    float q = 0;
    for (int i = TX; i < GX; i += DX) q += ((volatile float*)part)[i];
    s[TX] = q;
    SYNC;
    for (int o = 128; o > 0; o >>= 1) {
      if (TX < o) s[TX] += s[TX + o];
      SYNC;
    }
    if (TX == 0) {
      *out = s[0];
      *done = 0;
    }
  }
}
__global__ void scan_lookback(const int* in, int* out, volatile int* flag, volatile int* agg,
                              volatile int* incl, int* tick, int n) {
  __shared__ int b, pre, s[256];
  if (TX == 0) b = atomicAdd(tick, 1);
  SYNC;
  int bid = b, i = bid * 256 + TX;
  s[TX] = i < n ? in[i] : 0;
  SYNC;
  for (int o = 1; o < 256; o *= 2) {
    int v = TX >= o ? s[TX - o] : 0;
    SYNC;
    s[TX] += v;
    SYNC;
  }
  if (TX == 255) {
    agg[bid] = s[255];
    FENCE;
    flag[bid] = 1;
    int p = 0;
    for (int k = bid - 1; k >= 0;) {
      int f;
      while ((f = flag[k]) == 0)
        ;
      FENCE;
      if (f == 2) {
        p += incl[k];
        break;
      }
      p += agg[k];
      k--;
    }
    incl[bid] = p + s[255];
    FENCE;
    flag[bid] = 2;
    pre = p;
  }
  SYNC;
  if (i < n) out[i] = s[TX] + pre;
}
__global__ void scan_chained(const int* in, int* out, volatile int* ready, volatile int* before,
                             int n) {
  __shared__ int p;
  int i = BX * DX + TX;
  int v = i < n ? in[i] : 0;
  if (TX == 0) {
    if (BX > 0)
      while (ready[BX - 1] == 0)
        ;
    p = BX > 0 ? before[BX - 1] : 0;
    before[BX] = p + 1;
    FENCE;
    ready[BX] = 1;
  }
  SYNC;
  if (i < n) out[i] = v + p;
}
__global__ void radix_count(const u32* in, u32* counts, int n, int shift) {
  __shared__ u32 c[16];
  if (TX < 16) c[TX] = 0;
  SYNC;
  int i = BX * DX + TX;
  if (i < n) atomicAdd(&c[in[i] >> shift & 15], 1u);
  SYNC;
  if (TX < 16) counts[TX * GX + BX] = c[TX];
}
__global__ void bitonic_shared(int* k, int n) {
  __shared__ int s[512];
  s[TX] = k[BX * 512 + TX];
  s[TX + 256] = k[BX * 512 + TX + 256];
  for (int size = 2; size < 512; size <<= 1) {
    int d = (TX & (size / 2)) != 0;
    for (int st = size / 2; st > 0; st >>= 1) {
      SYNC;
      int p = 2 * TX - (TX & (st - 1));
      int a = s[p], b = s[p + st];
      if ((a > b) == d) {
        s[p] = b;
        s[p + st] = a;
      }
    }
  }
  SYNC;
  k[BX * 512 + TX] = s[TX];
  k[BX * 512 + TX + 256] = s[TX + 256];
}
__global__ void mandel(u8* out, int w, int h, int maxi) {
  int x = BX * DX + TX, y = BY * DY + TY;
  if (x >= w || y >= h) return;
  float cr = x * 3.f / w - 2, ci = y * 2.f / h - 1, zr = 0, zi = 0;
  int i = 0;
  while (i < maxi && zr * zr + zi * zi < 4) {
    float t = zr * zr - zi * zi + cr;
    zi = 2 * zr * zi + ci;
    zr = t;
    ++i;
  }
  out[y * w + x] = i;
}
__global__ void union_find(int* parent, const int* a, const int* b, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  int x = a[i], y = b[i];
  while (true) {
    while (x != parent[x]) x = parent[x];
    while (y != parent[y]) y = parent[y];
    if (x == y) return;
    if (x < y) {
      int t = x;
      x = y;
      y = t;
    }
    int o = atomicMin(&parent[x], y);
    if (o == x) return;
    x = o;
  }
}
__global__ void union_find_halving(int* parent, const int* a, const int* b, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  int u = a[i], v = b[i];
  int p = ((volatile int*)parent)[u], q = ((volatile int*)parent)[v];
  bool rep;
  do {
    rep = false;
    if (p != q) {
      int r;
      if (p < q) {
        if ((r = atomicCAS(&parent[q], q, p)) != q) {
          q = r;
          rep = true;
        }
      } else {
        if ((r = atomicCAS(&parent[p], p, q)) != p) {
          p = r;
          rep = true;
        }
      }
    }
  } while (rep);
}
__global__ void components_find(int* parent, int n) {
  int v = BX * DX + TX;
  if (v < n) {
    int cur = parent[v];
    if (cur != v) {
      int next, prev = v;
      while (cur > (next = parent[cur])) {
        parent[prev] = next;
        prev = cur;
        cur = next;
      }
      parent[v] = cur;
    }
  }
}
__global__ void sssp_relax(const int* row, const int* col, const int* w, int* dist, int* changed,
                           int n) {
  int u = BX * DX + TX;
  if (u < n) {
    int d = ((volatile int*)dist)[u];
    for (int e = row[u]; e < row[u + 1]; e++)
      if (atomicMin(&dist[col[e]], d + w[e]) > d + w[e]) *changed = 1;
  }
}
__global__ void luby(const int* row, const int* col, u8* st, const u8* pri,
                     int n) {  // maximal independent set, undecided until neighbours decided
  int from = BX * DX + TX, inc = GX * DX;
  int missing;
  do {
    missing = 0;
    for (int v = from; v < n; v += inc) {
      u8 nv = ((volatile u8*)st)[v];
      if (nv & 1) {
        int i = row[v];
        while (i < row[v + 1] && (nv > ((volatile u8*)st)[col[i]] ||
                                  (nv == ((volatile u8*)st)[col[i]] && v > col[i])))
          i++;
        if (i < row[v + 1])
          missing = 1;
        else {
          for (i = row[v]; i < row[v + 1]; i++) ((volatile u8*)st)[col[i]] = 0;
          ((volatile u8*)st)[v] = 0xfe;
        }
      }
    }
  } while (missing != 0);
}
__global__ void tree_build(volatile int* child, volatile int* next, const int* key,
                           int n) {  // Barnes-Hut's: a lock in the child pointer
  int i = BX * DX + TX, inc = GX * DX;
  bool skip = true;
  int at = 0, bit = 0;
  while (i < n) {
    if (skip) {
      skip = false;
      at = 0;
      bit = 31;
    }
    int b = at * 2 + ((key[i] >> bit) & 1);
    int ch = child[b];
    while (ch >= n) {
      at = ch - n;
      bit--;
      b = at * 2 + ((key[i] >> bit) & 1);
      ch = child[b];
    }
    if (ch != -2) {
      if (ch == -1) {
        if (-1 == atomicCAS((int*)&child[b], -1, i)) {
          i += inc;
          skip = true;
        }
      } else if (ch == atomicCAS((int*)&child[b], ch, -2)) {
        int c = atomicAdd((int*)next, 1);
        child[c * 2 + ((key[ch] >> (bit - 1)) & 1)] = ch;
        FENCE;
        child[b] = c + n;
      }
    }
    SYNC;
  }
}
__global__ void tree_summarize(volatile int* count, const int* child, int nn, int n,
                               volatile float* mass) {  // waits for children in higher cells
  int k = BX * DX + TX + n;
  while (k < nn) {
    int cm = 0;
    float m = 0;
    int j;
    for (j = 0; j < 2; j++) {
      int c = child[(k - n) * 2 + j];
      if (c >= 0) {
        float q = mass[c];
        if (c < n || q >= 0) {
          m += q;
          cm++;
        } else
          break;
      }
    }
    if (j == 2) {
      count[k] = cm;
      FENCE;
      mass[k] = m;
      k += GX * DX;
    }
  }
}
__global__ void triangular_solve(const int* row, const int* col, const float* v, const float* b,
                                 volatile float* x, volatile int* done, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  float s = b[i];
  int e;
  for (e = row[i]; e < row[i + 1] - 1; e++) {
    int j = col[e];
    while (done[j] == 0)
      ;
    FENCE;
    s -= v[e] * x[j];
  }
  x[i] = s / v[e];
  FENCE;
  done[i] = 1;
}
__global__ void grid_sync(volatile int* arrived, int* out, int rounds) {
  for (int r = 1; r <= rounds; r++) {
    out[BX * DX + TX] += r;
    SYNC;
    if (TX == 0) {
      FENCE;
      atomicAdd((int*)arrived, 1);
      while (*arrived < r * GX)
        ;
    }
    SYNC;
  }
}
__global__ void spin_flag(volatile int* go, int* out) {
  if (TX == 0)
    while (*go == 0)
      ;
  SYNC;
  out[BX * DX + TX] = 1;
}
__global__ void semaphore(int* sem, int* out, int n) {
  if (TX == 0) {
    while (true) {
      int v = *(volatile int*)sem;
      if (v > 0 && atomicCAS(sem, v, v - 1) == v) break;
    }
    FENCE;
  }
  SYNC;
  if (BX * DX + TX < n) out[BX * DX + TX] += 1;
  SYNC;
  if (TX == 0) {
    FENCE;
    atomicAdd(sem, 1);
  }
}
__global__ void ticket_lock(int* next, volatile int* serving, int* sum) {
  if (TX == 0) {
    int t = atomicAdd(next, 1);
    while (*serving != t)
      ;
    FENCE;
    *(volatile int*)sum += BX;
    FENCE;
    *serving = t + 1;
  }
}
__global__ void try_lock_skip(int* lock, int* sum, int* missed) {
  if (TX == 0) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int*)sum += 1;
      FENCE;
      atomicExch(lock, 0);
    } else
      atomicAdd(missed, 1);
  }
}
__global__ void rw_lock(int* state, int* data, int* out, int writers) {
  if (TX != 0) return;
  if (BX < writers) {
    while (atomicCAS(state, 0, -1) != 0)
      ;
    FENCE;
    *(volatile int*)data += 1;
    FENCE;
    atomicExch(state, 0);
  } else {
    while (true) {
      int s = *(volatile int*)state;
      if (s >= 0 && atomicCAS(state, s, s + 1) == s) break;
    }
    out[BX] = *(volatile int*)data;
    FENCE;
    atomicAdd(state, -1);
  }
}
__global__ void backoff_lock(int* lock, int* sum) {
  if (TX == 0) {
    u32 ns = 8;
    while (atomicCAS(lock, 0, 1) == 1) {
      asm volatile("nanosleep.u32 %0;" ::"r"(ns));
      if (ns < 256) ns *= 2;
    }
    FENCE;
    *(volatile int*)sum += 1;
    FENCE;
    atomicExch(lock, 0);
  }
}
__global__ void stack_pop(int* top, const int* next, int* out) {
  int h = *(volatile int*)top;
  while (h != -1) {
    int nx = ((volatile int*)next)[h];
    int o = atomicCAS(top, h, nx);
    if (o == h) break;
    h = o;
  }
  out[BX * DX + TX] = h;
}
__global__ void list_alloc(u32* bitmap, int words, int* out) {
  u32 w = (BX * DX + TX) % words;
  for (int tries = 0; tries < words; tries++) {
    u32 v = bitmap[w];
    while (v != ~0u) {
      int b = __builtin_ctz(~v);
      u32 old = atomicOr((int*)&bitmap[w], 1 << b);
      if (!(old & (1u << b))) {
        out[BX * DX + TX] = w * 32 + b;
        return;
      }
      v = old | (1u << b);
    }
    w = (w + 1) % words;
  }
  out[BX * DX + TX] = -1;
}
__global__ void warp_aggregate(const int* in, int* out, int* n_out, int n) {
  int i = BX * DX + TX;
  bool p = i < n && in[i] > 0;
  u32 m = __nvvm_vote_ballot_sync(~0u, p);
  int ld = __builtin_ctz(m | 0x80000000u);
  int b = 0;
  if (lane() == ld && m) b = atomicAdd(n_out, __builtin_popcount(m));
  b = shfl(b, ld);
  if (p) out[b + __builtin_popcount(m & ((1u << lane()) - 1))] = in[i];
}
__global__ void color_jp(const int* row, const int* col, int* color, const int* rnd, int c, int n) {
  int v = BX * DX + TX;
  if (v < n && color[v] == -1) {
    bool mx = true;
    for (int e = row[v]; e < row[v + 1]; e++) {
      int u = col[e];
      int cu = color[u];
      if ((cu != -1 && cu != c) || u == v) continue;
      if (rnd[v] <= rnd[u]) mx = false;
    }
    if (mx) color[v] = c;
  }
}
__global__ void converge(float* v, int* iters, int n, float eps) {
  __shared__ float s[256];
  __shared__ int go;
  s[TX] = v[BX * 256 + TX];
  int k = 0;
  do {
    SYNC;
    if (TX == 0) go = 0;
    SYNC;
    float l = TX > 0 ? s[TX - 1] : 0, r = TX < 255 ? s[TX + 1] : 0;
    float nv = (l + r) / 2;
    if (fabs_(nv - s[TX]) > eps) go = 1;
    SYNC;
    s[TX] = nv;
    SYNC;
    k++;
  } while (go && k < n);
  v[BX * 256 + TX] = s[TX];
  if (TX == 0) iters[BX] = k;
}
__global__ void floyd(int* d, int n, int k) {
  int i = BY * DY + TY, j = BX * DX + TX;
  if (i < n && j < n) {
    int a = d[i * n + k] + d[k * n + j];
    if (a < d[i * n + j]) d[i * n + j] = a;
  }
}
__global__ void string_search(const char* text, int n, const char* pat, int m, int* hits) {
  int i = BX * DX + TX;
  if (i > n - m) return;
  int k = 0;
  while (k < m && text[i + k] == pat[k]) k++;
  if (k == m) hits[atomicAdd(hits, 1) + 1] = i;
}
__global__ void lz_decode(const u8* in, u8* out, const int* off, int n) {
  int b = BX * DX + TX;
  if (b >= n) return;
  const u8* p = in + off[b];
  const u8* e = in + off[b + 1];
  u8* o = out + b * 4096;
  while (p < e) {
    u8 c = *p++;
    if (c & 0x80) {
      int len = c & 0x7f, d = *p++;
      for (int i = 0; i < len; i++) {
        *o = o[-d];
        o++;
      }
    } else
      *o++ = c;
  }
}
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void recursion(int* out, int n) {
  int i = BX * DX + TX;
  if (i < n) out[i] = fib(i % 12);
}
typedef float (*fn)(float);
__device__ float f_a(float x) { return x * x; }
__device__ float f_b(float x) { return x + 1; }
__device__ float f_c(float x) { return -x; }
__device__ fn table[3] = {f_a, f_b, f_c};
__global__ void by_pointer(float* v, int which, int n) {
  int i = BX * DX + TX;
  if (i < n) v[i] = table[which](v[i]);
}
}
struct Shape {
  __device__ virtual float area() const { return 0; }
};
struct Sq : Shape {
  float a;
  __device__ Sq(float x) : a(x) {}
  __device__ float area() const override { return a * a; }
};
struct Ci : Shape {
  float r;
  __device__ Ci(float x) : r(x) {}
  __device__ float area() const override { return 3.14f * r * r; }
};
extern "C" __global__ void virtuals(float* out, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    Sq s(i);
    Ci c(i);
    Shape* p = i & 1 ? (Shape*)&s : (Shape*)&c;
    out[i] = p->area();
  }
}
extern "C" __device__ void __assertfail(const char*, const char*, u32, const char*, u64);
#define ASSERT(c)                        \
  do {                                   \
    if (!(c)) {                          \
      __assertfail("c", "f", 1, "g", 1); \
    }                                    \
  } while (0)
extern "C" __global__ void asserts(const int* in, int* out, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    ASSERT(in[i] >= 0);
    out[in[i] % n] = i;
  }
}
extern "C" __global__ void asserts_unreachable(const int* in, int* out, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    if (in[i] < 0) {
      __assertfail("c", "f", 1, "g", 1);
      __builtin_unreachable();
    }
    out[in[i] % n] = i;
  }
}
extern "C" __global__ void asserts_loop(const int* in, int* out, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    if (in[i] < 0) {
      __assertfail("c", "f", 1, "g", 1);
      while (true)
        ;
    }
    out[in[i] % n] = i;
  }
}
extern "C" __global__ void trap_check(const int* in, int* out, int n) {
  int i = BX * DX + TX;
  if (i < n) {
    if (in[i] < 0) __builtin_trap();
    out[i] = in[i];
  }
}
extern "C" __global__ void early_barrier(float* v, int n) {
  __shared__ float s[256];
  int i = BX * DX + TX;
  if (i >= n) return;
  s[TX] = v[i];
  SYNC;
  v[i] = s[(TX + 1) % DX < n - BX * DX ? (TX + 1) % DX : 0];
}
extern "C" __global__ void switch_case(int* v, const int* op, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  switch (op[i]) {
    case 0:
      v[i]++;
      break;
    case 1:
      v[i]--;
      break;
    case 2:
      v[i] *= 3;
    case 3:
      v[i] ^= 5;
      break;
    case 4:
      return;
    case 5:
      v[i] = 0;
      break;
    case 6:
      v[i] = ~v[i];
      break;
    default:
      v[i] += op[i];
  }
}
template <class T>
struct Vec {
  T* p;
  int n;
  __device__ T& operator[](int i) { return p[i]; }
};
template <class F>
__global__ void for_each(F f, int n) {
  for (int i = BX * DX + TX; i < n; i += GX * DX) f(i);
}
struct Axpy {
  Vec<float> x, y;
  float a;
  __device__ void operator()(int i) { y[i] += a * x[i]; }
};
template __global__ void for_each<Axpy>(Axpy, int);
struct Cell {
  int state;
  int value;
};
extern "C" __global__ void cuckoo(u64* t, const u32* keys, int n, int cap) {
  int i = BX * DX + TX;
  if (i >= n) return;
  u64 e = (u64)keys[i] << 32 | i;
  u32 h = keys[i] % cap;
  for (int k = 0; k < 32 && e; k++) {
    union {
      u64 a;
      i64 b;
    } u;
    u.a = e;
    e = __nvvm_atom_xchg_gen_ll((i64*)&t[h], u.b);
    u32 q = e >> 32;
    h = (q * 31 + 7) % cap == h ? q % cap : (q * 31 + 7) % cap;
  }
}
extern "C" __global__ void slot_claim(Cell* cells, const int* in, int n, int cap) {
  int i = BX * DX + TX;
  if (i >= n) return;
  int h = in[i] % cap;
  while (true) {
    int s = atomicCAS(&cells[h].state, 0, 1);
    if (s == 0) {
      cells[h].value = in[i];
      FENCE;
      atomicExch(&cells[h].state, 2);
      return;
    }
    while (*(volatile int*)&cells[h].state != 2)
      ;
    if (cells[h].value == in[i]) return;
    h = (h + 1) % cap;
  }
}
extern "C" __global__ void value_lock_f(float* cells, const float* in, const int* at, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  float* c = &cells[at[i]];
  bool done = false;
  while (!done) {
    float v = as_f(atomicExch((int*)c, (int)0x80000000));
    if (as_i(v) != (int)0x80000000) {
      *(volatile float*)c = v + in[i];
      FENCE;
      done = true;
    }
  }
}
extern "C" __global__ void double_lock(int* locks, int* acc, const int* from, const int* to,
                                       int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  int a = from[i], b = to[i];
  if (a == b) return;
  if (a > b) {
    int t = a;
    a = b;
    b = t;
  }
  bool done = false;
  while (!done) {
    if (atomicCAS(&locks[a], 0, 1) == 0) {
      if (atomicCAS(&locks[b], 0, 1) == 0) {
        ((volatile int*)acc)[a] -= 1;
        ((volatile int*)acc)[b] += 1;
        FENCE;
        done = true;
        atomicExch(&locks[b], 0);
      }
      atomicExch(&locks[a], 0);
    }
  }
}
extern "C" __global__ void stm_retry(int* ver, int* data, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  while (true) {
    int v = *(volatile int*)ver;
    if (v & 1) continue;
    if (atomicCAS(ver, v, v + 1) != v) continue;
    *(volatile int*)data += i;
    FENCE;
    atomicExch(ver, v + 2);
    break;
  }
}
extern "C" __global__ void seq_read(volatile int* ver, volatile int* data, int* out, int n) {
  int i = BX * DX + TX;
  if (i >= n) return;
  int a, b, v;
  do {
    a = *ver;
    FENCE;
    v = *data;
    FENCE;
    b = *ver;
  } while (a != b || (a & 1));
  out[i] = v;
}
