// SPDX-License-Identifier: Apache-2.0
// The host side of cfd.cu: a block of cells with walls on one side and the far field on the others.
#include <array>

#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/cfd.ptx.h"

namespace sluice::suite {

namespace {

constexpr std::size_t kFaces = 4, kVariables = 5;
constexpr double kGamma = 1.4;

using State = std::array<double, kVariables>;

struct Mesh {
  std::size_t cells = 0;
  std::vector<std::int32_t> neighbours;  // of face f of cell i: [i + f * cells]
  std::vector<float> normals;            // component c: [i + (f + c * kFaces) * cells]
  std::vector<float> areas;
  std::vector<float> far;
};

struct Derived {
  double speed = 0, pressure = 0, sound = 0;
  std::array<double, 3> velocity{};
};

Derived derive(const State& s) {
  Derived d;
  double speed2 = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    d.velocity[k] = s[k + 1] / s[0];
    speed2 += d.velocity[k] * d.velocity[k];
  }
  d.speed = std::sqrt(speed2);
  d.pressure = (kGamma - 1) * (s[4] - s[0] * speed2 / 2);
  d.sound = std::sqrt(kGamma * d.pressure / s[0]);
  return d;
}

// Half of what flows in through a face with this normal when the state stands on one side.
void add_half(State& flux, const State& s, const std::array<double, 3>& n) {
  const Derived d = derive(s);
  double through = 0;
  for (std::size_t k = 0; k < 3; ++k) through += n[k] * d.velocity[k];
  for (std::size_t v = 0; v < kVariables; ++v) flux[v] -= through * s[v] / 2;
  for (std::size_t k = 0; k < 3; ++k) flux[k + 1] -= n[k] * d.pressure / 2;
  flux[4] -= through * d.pressure / 2;
}

State flux_of(const Mesh& mesh, const std::vector<State>& all, std::size_t i) {
  State flux{};
  const Derived me = derive(all[i]);
  for (std::size_t f = 0; f < kFaces; ++f) {
    std::array<double, 3> n{};
    double length2 = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      n[k] = mesh.normals[i + (f + k * kFaces) * mesh.cells];
      length2 += n[k] * n[k];
    }
    const std::int32_t other = mesh.neighbours[i + f * mesh.cells];
    if (other == -1) {
      for (std::size_t k = 0; k < 3; ++k) flux[k + 1] -= n[k] * me.pressure;
      continue;
    }
    State there{};
    if (other >= 0)
      there = all[static_cast<std::size_t>(other)];
    else
      std::copy(mesh.far.begin(), mesh.far.end(), there.begin());
    if (other >= 0) {
      const Derived d = derive(there);
      const double smooth = -std::sqrt(length2) * 0.1 * (me.speed + d.speed + me.sound + d.sound);
      for (std::size_t v = 0; v < kVariables; ++v) flux[v] += smooth * (all[i][v] - there[v]);
    }
    add_half(flux, all[i], n);
    add_half(flux, there, n);
  }
  return flux;
}

std::vector<float> solve(const Mesh& mesh, const std::vector<float>& start, int iterations) {
  std::vector<State> now(mesh.cells);
  for (std::size_t i = 0; i < mesh.cells; ++i)
    for (std::size_t v = 0; v < kVariables; ++v) now[i][v] = start[i + v * mesh.cells];
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const std::vector<State> old = now;
    for (int stage = 0; stage < 3; ++stage) {
      std::vector<State> next = now;
      for (std::size_t i = 0; i < mesh.cells; ++i) {
        const Derived d = derive(old[i]);
        const double factor =
            0.5 / (std::sqrt(double{mesh.areas[i]}) * (d.speed + d.sound)) / (3 - stage);
        const State flux = flux_of(mesh, now, i);
        for (std::size_t v = 0; v < kVariables; ++v) next[i][v] = old[i][v] + factor * flux[v];
      }
      now = next;
    }
  }
  std::vector<float> result(start.size());
  for (std::size_t i = 0; i < mesh.cells; ++i)
    for (std::size_t v = 0; v < kVariables; ++v)
      result[i + v * mesh.cells] = static_cast<float>(now[i][v]);
  return result;
}

}  // namespace

Case case_cfd(const CaseOptions& options) {
  constexpr int iterations = 2;
  const std::uint32_t width = scaled_edge(options, 22, 2), height = width / 2 + 1;
  Mesh mesh;
  mesh.cells = std::size_t{width} * height;
  mesh.neighbours.resize(mesh.cells * kFaces);
  mesh.normals.resize(mesh.cells * kFaces * 3);
  mesh.areas = uniform_floats(mesh.cells, options.seed, 1, 2);
  mesh.far = {1.4f, 0.8f, 0.1f, 0.05f, 3.0f};
  const auto tilt = uniform_floats(mesh.cells * kFaces, options.seed + 1, -0.2f, 0.2f);
  for (std::size_t i = 0; i < mesh.cells; ++i) {
    const std::size_t x = i % width, y = i / width;
    const std::int32_t at[kFaces] = {x + 1 < width ? static_cast<std::int32_t>(i + 1) : -2,
                                     x > 0 ? static_cast<std::int32_t>(i - 1) : -2,
                                     y + 1 < height ? static_cast<std::int32_t>(i + width) : -2,
                                     y > 0 ? static_cast<std::int32_t>(i - width) : -1};
    constexpr float along[kFaces][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    for (std::size_t f = 0; f < kFaces; ++f) {
      mesh.neighbours[i + f * mesh.cells] = at[f];
      const float normal[3] = {0.1f * along[f][0], 0.1f * along[f][1],
                               0.1f * tilt[i + f * mesh.cells]};
      for (std::size_t k = 0; k < 3; ++k)
        mesh.normals[i + (f + k * kFaces) * mesh.cells] = normal[k];
    }
  }
  auto start = uniform_floats(mesh.cells * kVariables, options.seed + 2, -0.1f, 0.1f);
  for (std::size_t k = 0; k < start.size(); ++k) start[k] += mesh.far[k / mesh.cells];

  CaseBuilder build("cfd", kCfdPtx);
  build.symbol("cfd_far_field", bytes_of(mesh.far));
  const Pointer d_neighbours = build.input("neighbours", mesh.neighbours);
  const Pointer d_normals = build.input("normals", mesh.normals);
  const Pointer d_areas = build.input("areas", mesh.areas);
  const Pointer d_variables = build.input("variables", start);
  const Pointer d_old = build.output<float>("old", start.size());
  const Pointer d_fluxes = build.output<float>("fluxes", start.size());
  const Pointer d_factors = build.output<float>("factors", mesh.cells);
  const auto cells = static_cast<std::int32_t>(mesh.cells);
  const Extent3 grid = {blocks(mesh.cells, 192), 1, 1}, block = {192, 1, 1};
  for (int iteration = 0; iteration < iterations; ++iteration) {
    build.copy(d_old, d_variables, start.size() * sizeof(float));
    build.launch("cfd_step_factor", grid, block, 0, d_variables, d_areas, d_factors, cells);
    for (std::int32_t stage = 0; stage < 3; ++stage) {
      build.launch("cfd_flux", grid, block, 0, d_neighbours, d_normals, d_variables, d_fluxes,
                   cells);
      build.launch("cfd_time_step", grid, block, 0, stage, d_old, d_variables, d_factors, d_fluxes,
                   cells);
    }
  }
  build.expect<float>(d_variables, 1e-4, [=] { return solve(mesh, start, iterations); });
  return build.take();
}

}  // namespace sluice::suite
