// SPDX-License-Identifier: Apache-2.0
// Euler solver for compressible flow over an unstructured mesh of cells with four faces: a step
// factor per cell, fluxes from the neighbours, and the step in time. A neighbour of -1 is a wall,
// -2 the far field, whose state is in constant memory.
constexpr int kFaces = 4;
constexpr int kVariables = 5;  // density, momentum x y z, energy: one array after the other
constexpr float kGamma = 1.4f;

__constant__ float cfd_far_field[kVariables];

struct State {
  float density;
  float3 momentum;
  float energy;
};

__device__ State load(const float* variables, int i, int cells) {
  return {variables[i],
          make_float3(variables[i + cells], variables[i + 2 * cells], variables[i + 3 * cells]),
          variables[i + 4 * cells]};
}
__device__ float3 velocity_of(const State& s) {
  return make_float3(s.momentum.x / s.density, s.momentum.y / s.density, s.momentum.z / s.density);
}
__device__ float square(float3 v) { return v.x * v.x + v.y * v.y + v.z * v.z; }
__device__ float pressure_of(const State& s, float speed2) {
  return (kGamma - 1.0f) * (s.energy - 0.5f * s.density * speed2);
}

// What flows through a face with normal n out of the state, times `half`, added to `flux`.
__device__ void add_flux(float* flux, const State& s, float3 n, float half) {
  const float3 v = velocity_of(s);
  const float p = pressure_of(s, square(v));
  const float through = n.x * v.x + n.y * v.y + n.z * v.z;
  flux[0] += half * s.density * through;
  flux[1] += half * (s.momentum.x * through + n.x * p);
  flux[2] += half * (s.momentum.y * through + n.y * p);
  flux[3] += half * (s.momentum.z * through + n.z * p);
  flux[4] += half * (s.energy + p) * through;
}

extern "C" __global__ void cfd_step_factor(const float* variables, const float* areas,
                                           float* factors, int cells) {
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i >= cells) return;
  const State s = load(variables, i, cells);
  const float speed2 = square(velocity_of(s));
  const float sound = sqrtf(kGamma * pressure_of(s, speed2) / s.density);
  factors[i] = 0.5f / (sqrtf(areas[i]) * (sqrtf(speed2) + sound));
}

extern "C" __global__ void cfd_flux(const int* neighbours, const float* normals,
                                    const float* variables, float* fluxes, int cells) {
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i >= cells) return;
  const State me = load(variables, i, cells);
  const float my_speed2 = square(velocity_of(me));
  const float my_pressure = pressure_of(me, my_speed2);
  const float my_sound = sqrtf(kGamma * my_pressure / me.density);
  float flux[kVariables] = {0, 0, 0, 0, 0};
#pragma unroll
  for (int face = 0; face < kFaces; ++face) {
    const int other = neighbours[i + face * cells];
    const float3 n = make_float3(normals[i + face * cells], normals[i + (face + kFaces) * cells],
                                 normals[i + (face + 2 * kFaces) * cells]);
    if (other >= 0) {
      const State s = load(variables, other, cells);
      const float speed2 = square(velocity_of(s));
      const float sound = sqrtf(kGamma * pressure_of(s, speed2) / s.density);
      const float smooth =
          -sqrtf(square(n)) * 0.2f * 0.5f * (sqrtf(my_speed2) + sqrtf(speed2) + my_sound + sound);
      flux[0] += smooth * (me.density - s.density);
      flux[1] += smooth * (me.momentum.x - s.momentum.x);
      flux[2] += smooth * (me.momentum.y - s.momentum.y);
      flux[3] += smooth * (me.momentum.z - s.momentum.z);
      flux[4] += smooth * (me.energy - s.energy);
      add_flux(flux, me, n, -0.5f);
      add_flux(flux, s, n, -0.5f);
    } else if (other == -1) {
      flux[1] -= n.x * my_pressure;
      flux[2] -= n.y * my_pressure;
      flux[3] -= n.z * my_pressure;
    } else {
      const State far = {cfd_far_field[0],
                         make_float3(cfd_far_field[1], cfd_far_field[2], cfd_far_field[3]),
                         cfd_far_field[4]};
      add_flux(flux, me, n, -0.5f);
      add_flux(flux, far, n, -0.5f);
    }
  }
  for (int v = 0; v < kVariables; ++v) fluxes[i + v * cells] = flux[v];
}

extern "C" __global__ void cfd_time_step(int stage, const float* old, float* variables,
                                         const float* factors, const float* fluxes, int cells) {
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i >= cells) return;
  const float factor = factors[i] / static_cast<float>(3 - stage);
  for (int v = 0; v < kVariables; ++v)
    variables[i + v * cells] = old[i + v * cells] + factor * fluxes[i + v * cells];
}
