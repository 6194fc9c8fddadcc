// SPDX-License-Identifier: Apache-2.0
// OpenCL kernels in the manner of public suites. One waits for the host and must be opaque:
// wait_flag. For make_opencl.py.
#pragma OPENCL EXTENSION cl_khr_global_int32_base_atomics : enable
kernel void axpy(global float* y, global const float* x, float a, int n) {
  int i = get_global_id(0);
  if (i < n) y[i] += a * x[i];
}
kernel void reduce(global const float* x, global float* o, local float* s, int n) {
  int l = get_local_id(0);
  float a = 0;
  for (int i = get_global_id(0); i < n; i += get_global_size(0)) a += x[i];
  s[l] = a;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = get_local_size(0) / 2; k > 0; k /= 2) {
    if (l < k) s[l] += s[l + k];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == 0) o[get_group_id(0)] = s[0];
}
kernel void transpose(global const float* a, global float* b, int w, int h, local float* t) {
  int x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0), ly = get_local_id(1);
  if (x < w && y < h) t[ly * 17 + lx] = a[y * w + x];
  barrier(CLK_LOCAL_MEM_FENCE);
  int X = get_group_id(1) * 16 + lx, Y = get_group_id(0) * 16 + ly;
  if (X < h && Y < w) b[Y * h + X] = t[lx * 17 + ly];
}
kernel void hist(global const uint* x, global uint* h, local uint* l, int n) {
  for (int i = get_local_id(0); i < 256; i += get_local_size(0)) l[i] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = get_global_id(0); i < n; i += get_global_size(0)) atomic_inc(&l[x[i] & 255]);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = get_local_id(0); i < 256; i += get_local_size(0)) atomic_add(&h[i], l[i]);
}
kernel void gemm(global const float* a, global const float* b, global float* c, int n) {
  local float s[16][16], t[16][16];
  int x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0), ly = get_local_id(1);
  float r = 0;
  for (int k = 0; k < n; k += 16) {
    s[ly][lx] = a[y * n + k + lx];
    t[ly][lx] = b[(k + ly) * n + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < 16; q++) r += s[ly][q] * t[q][lx];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[y * n + x] = r;
}
kernel void bfs(global const int* row, global const int* col, global int* d, global int* ch, int n,
                int lev) {
  int i = get_global_id(0);
  if (i < n && d[i] == lev)
    for (int e = row[i]; e < row[i + 1]; e++)
      if (d[col[e]] < 0) {
        d[col[e]] = lev + 1;
        *ch = 1;
      }
}
kernel void fadd_cas(global float* sum, global const float* x, int n) {
  int i = get_global_id(0);
  if (i >= n) return;
  union {
    uint u;
    float f;
  } o, v;
  do {
    o.f = *sum;
    v.f = o.f + x[i];
  } while (atomic_cmpxchg((volatile global uint*)sum, o.u, v.u) != o.u);
}
kernel void lockadd(global int* lk, global int* v) {
  if (get_local_id(0) == 0) {
    while (atomic_cmpxchg(lk, 0, 1) != 0)
      ;
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    *(volatile global int*)v += get_group_id(0);
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_xchg(lk, 0);
  }
}
kernel void queue(global const int* x, global int* o, global int* head, int n) {
  local int b;
  for (;;) {
    if (get_local_id(0) == 0) b = atomic_add(head, get_local_size(0));
    barrier(CLK_LOCAL_MEM_FENCE);
    int k = b;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k >= n) break;
    int i = k + get_local_id(0);
    if (i < n) o[i] = x[i] * 2;
  }
}
kernel void scan(global int* x, local int* s, int n) {
  int l = get_local_id(0), g = get_global_id(0);
  s[l] = g < n ? x[g] : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint o = 1; o < get_local_size(0); o *= 2) {
    int v = l >= (int)o ? s[l - o] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    s[l] += v;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (g < n) x[g] = s[l];
}
kernel void mandel(global uchar* o, int w, int h, int m) {
  int x = get_global_id(0), y = get_global_id(1);
  if (x >= w || y >= h) return;
  float cr = x * 3.0f / w - 2, ci = y * 2.0f / h - 1, a = 0, b = 0;
  int i = 0;
  while (i < m && a * a + b * b < 4) {
    float t = a * a - b * b + cr;
    b = 2 * a * b + ci;
    a = t;
    i++;
  }
  o[y * w + x] = i;
}
kernel void nbody(global const float4* p, global float4* v, int n, local float4* s) {
  int i = get_global_id(0), l = get_local_id(0);
  float4 me = p[i], a = (float4)(0);
  for (int t = 0; t < n; t += get_local_size(0)) {
    s[l] = p[t + l];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = 0; k < get_local_size(0); k++) {
      float4 d = s[k] - me;
      float r = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f;
      a += d * (s[k].w / r);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  v[i] += a;
}
kernel void hotspot(global const float* p, global const float* t, global float* r, int w, int h,
                    float c) {
  local float s[18][18];
  int x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0) + 1,
      ly = get_local_id(1) + 1;
  s[ly][lx] = t[y * w + x];
  if (lx == 1) s[ly][0] = t[y * w + max(x - 1, 0)];
  if (lx == 16) s[ly][17] = t[y * w + min(x + 1, w - 1)];
  if (ly == 1) s[0][lx] = t[max(y - 1, 0) * w + x];
  if (ly == 16) s[17][lx] = t[min(y + 1, h - 1) * w + x];
  barrier(CLK_LOCAL_MEM_FENCE);
  r[y * w + x] = s[ly][lx] + c * (p[y * w + x] + s[ly - 1][lx] + s[ly + 1][lx] + s[ly][lx - 1] +
                                  s[ly][lx + 1] - 4 * s[ly][lx]);
}
kernel void spmv(global const int* row, global const int* col, global const float* v,
                 global const float* x, global float* y, int n) {
  int i = get_global_id(0);
  if (i < n) {
    float s = 0;
    for (int e = row[i]; e < row[i + 1]; e++) s += v[e] * x[col[e]];
    y[i] = s;
  }
}
kernel void hash_insert(global uint* t, global const uint* k, int cap, int n) {
  int i = get_global_id(0);
  if (i >= n) return;
  uint h = (k[i] * 2654435761u) & (cap - 1);
  for (;;) {
    uint p = atomic_cmpxchg(&t[h], 0xffffffffu, k[i]);
    if (p == 0xffffffffu || p == k[i]) return;
    h = (h + 1) & (cap - 1);
  }
}
kernel void sobel(global const uchar* a, global uchar* b, int w, int h) {
  int x = get_global_id(0), y = get_global_id(1);
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
  int gx = a[(y - 1) * w + x + 1] - a[(y - 1) * w + x - 1] + 2 * a[y * w + x + 1] -
           2 * a[y * w + x - 1],
      gy = a[(y + 1) * w + x] - a[(y - 1) * w + x];
  b[y * w + x] = clamp(gx * gx + gy * gy, 0, 255);
}
kernel void early(global float* v, int n, local float* s) {
  int i = get_global_id(0);
  if (i >= n) return;
  s[get_local_id(0)] = v[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  v[i] = s[0];
}
kernel void sort_bitonic(global int* k, int j, int m) {
  uint i = get_global_id(0);
  uint x = i ^ j;
  if (x > i) {
    bool up = (i & m) == 0;
    int a = k[i], b = k[x];
    if ((a > b) == up) {
      k[i] = b;
      k[x] = a;
    }
  }
}
kernel void wait_flag(volatile global int* f, global int* o) {
  while (*f == 0)
    ;
  o[get_global_id(0)] = 1;
}
kernel void sincos_math(global float* x, int n) {
  int i = get_global_id(0);
  if (i < n) x[i] = sin(x[i]) * exp(x[i]) + pow(x[i], 1.5f);
}
