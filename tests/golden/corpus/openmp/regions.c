// SPDX-License-Identifier: Apache-2.0
// OpenMP target regions in the manner of public suites. For make_openmp.py.
typedef unsigned u32;
double dot(const double* x, const double* y, int n) {
  double s = 0;
#pragma omp target teams distribute parallel for reduction(+:s) map(to:x[:n],y[:n]) map(tofrom:s)
  for (int i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}
float maxabs(const float* x, int n) {
  float m = 0;
#pragma omp target teams distribute parallel for reduction(max : m) map(to : x[:n]) map(tofrom : m)
  for (int i = 0; i < n; i++) {
    float a = x[i] < 0 ? -x[i] : x[i];
    if (a > m) m = a;
  }
  return m;
}
void stats(const float* x, int n, double* o) {
  double s = 0, q = 0;
  int c = 0;
#pragma omp target teams distribute parallel for reduction(+:s,q,c) map(to:x[:n]) map(tofrom:s,q,c)
  for (int i = 0; i < n; i++) {
    s += x[i];
    q += x[i] * x[i];
    c += x[i] > 0;
  }
  o[0] = s;
  o[1] = q;
  o[2] = c;
}
void axpy(float a, const float* x, float* y, int n) {
#pragma omp target teams distribute parallel for map(to : x[:n]) map(tofrom : y[:n])
  for (int i = 0; i < n; i++) y[i] += a * x[i];
}
void stencil(const float* a, float* b, int w, int h) {
#pragma omp target teams distribute parallel for collapse(2) map(to                      \
                                                                 : a[:w * h]) map(tofrom \
                                                                                  : b[:w * h])
  for (int y = 1; y < h - 1; y++)
    for (int x = 1; x < w - 1; x++)
      b[y * w + x] =
          (a[y * w + x - 1] + a[y * w + x + 1] + a[(y - 1) * w + x] + a[(y + 1) * w + x]) * .25f;
}
void gemm(const float* a, const float* b, float* c, int n) {
#pragma omp target teams distribute parallel for collapse(2) map(to                   \
                                                                 : a[:n * n], b       \
                                                                 [:n * n]) map(tofrom \
                                                                               : c[:n * n])
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      float s = 0;
      for (int k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
      c[i * n + j] = s;
    }
}
void gemv_nested(const float* a, const float* x, float* y, int n) {
#pragma omp target teams distribute map(to : a[:n * n], x[:n]) map(tofrom : y[:n])
  for (int i = 0; i < n; i++) {
    float s = 0;
#pragma omp parallel for reduction(+ : s)
    for (int j = 0; j < n; j++) s += a[i * n + j] * x[j];
    y[i] = s;
  }
}
void hist(const u32* x, int* h, int n, int nb) {
#pragma omp target teams distribute parallel for map(to : x[:n]) map(tofrom : h[:nb])
  for (int i = 0; i < n; i++) {
#pragma omp atomic
    h[x[i] % nb]++;
  }
}
void hist_f(const u32* x, float* h, int n, int nb) {
#pragma omp target teams distribute parallel for map(to : x[:n]) map(tofrom : h[:nb])
  for (int i = 0; i < n; i++) {
#pragma omp atomic
    h[x[i] % nb] *= 1.5f;
  }
}
int count_cap(const int* x, int n) {
  int c = 0;
#pragma omp target teams distribute parallel for map(to : x[:n]) map(tofrom : c)
  for (int i = 0; i < n; i++) {
    if (x[i] > 3) {
      int k;
#pragma omp atomic capture
      k = c++;
      (void)k;
    }
  }
  return c;
}
void phases(float* a, float* b, int n) {
#pragma omp target parallel map(tofrom : a[:n], b[:n])
  {
#pragma omp for
    for (int i = 0; i < n; i++) b[i] = a[i] * 2;
#pragma omp barrier
#pragma omp for
    for (int i = 1; i < n; i++) a[i] = b[i - 1] + b[i];
#pragma omp single
    a[0] = 7;
#pragma omp master
    b[0] = 8;
  }
}
void dyn(const int* w, int* o, int n) {
#pragma omp target teams distribute parallel for schedule(dynamic, 4) map(to                  \
                                                                          : w[:n]) map(tofrom \
                                                                                       : o[:n])
  for (int i = 0; i < n; i++) {
    int s = 0;
    for (int k = 0; k < w[i]; k++) s += k * k;
    o[i] = s;
  }
}
void gui(const int* w, int* o, int n) {
#pragma omp target parallel for schedule(guided) map(to : w[:n]) map(tofrom : o[:n])
  for (int i = 0; i < n; i++) {
    int s = 0;
    for (int k = 0; k < w[i]; k++) s += k * k;
    o[i] = s;
  }
}
void simd(float* x, int n) {
#pragma omp target teams distribute parallel for simd map(tofrom : x[:n])
  for (int i = 0; i < n; i++) x[i] = x[i] * x[i] + 1;
}
void serial(float* x, int n) {
#pragma omp target map(tofrom : x[:n])
  for (int i = 1; i < n; i++) x[i] += x[i - 1];
}
struct P {
  float x, y, z;
};
void nbody(struct P* p, struct P* v, int n) {
#pragma omp target teams distribute parallel for map(to : p[:n]) map(tofrom : v[:n])
  for (int i = 0; i < n; i++) {
    float ax = 0, ay = 0, az = 0;
    for (int j = 0; j < n; j++) {
      float dx = p[j].x - p[i].x, dy = p[j].y - p[i].y, dz = p[j].z - p[i].z;
      float r = dx * dx + dy * dy + dz * dz + .01f;
      ax += dx / r;
      ay += dy / r;
      az += dz / r;
    }
    v[i].x += ax;
    v[i].y += ay;
    v[i].z += az;
  }
}
int bfs(const int* row, const int* col, int* d, int n, int lev) {
  int ch = 0;
#pragma omp target teams distribute parallel for reduction(|                              \
                                                           : ch) map(to                   \
                                                                     : row[:n + 1], col   \
                                                                     [:n * 4]) map(tofrom \
                                                                                   : d[:n], ch)
  for (int i = 0; i < n; i++)
    if (d[i] == lev)
      for (int e = row[i]; e < row[i + 1]; e++)
        if (d[col[e]] < 0) {
          d[col[e]] = lev + 1;
          ch = 1;
        }
  return ch;
}
void team_local(const int* x, int* o, int n) {
#pragma omp target teams map(to : x[:n]) map(tofrom : o[:64]) num_teams(64)
  {
    int loc[32];
    for (int k = 0; k < 32; k++) loc[k] = 0;
#pragma omp distribute parallel for
    for (int i = 0; i < n; i++) {
#pragma omp atomic
      loc[x[i] & 31]++;
    }
#pragma omp distribute
    for (int t = 0; t < 64; t++) o[t] = loc[t & 31];
  }
}
void lastpriv(const int* x, int* o, int n) {
  int l = 0;
#pragma omp target teams distribute parallel for lastprivate(l) map(to                  \
                                                                    : x[:n]) map(tofrom \
                                                                                 : o[:1], l)
  for (int i = 0; i < n; i++) l = x[i];
  o[0] = l;
}
void arr_red(const float* x, float* o, int n) {
  float s[8] = {0};
#pragma omp target teams distribute parallel for reduction(+:s[:8]) map(to:x[:n]) map(tofrom:s)
  for (int i = 0; i < n; i++) s[i & 7] += x[i];
  for (int k = 0; k < 8; k++) o[k] = s[k];
}
