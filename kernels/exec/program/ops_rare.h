// SPDX-License-Identifier: Apache-2.0
// Operations that programs use seldom: video instructions, vector and 128-bit atomics: a lane at a
// time, compiled once. X(name, (handler)); see ops_int.h.
#pragma once

// clang-format off
#define SLUICE_EXEC_RARE_OPS(X) \
  X(flush_f64, (flush_f64)) \
  X(video, (video)) \
  X(videosimd, (video_simd)) \
  X(videomad, (video_mad)) \
  X(atomvec, (atomic_vector)) \
  X(atom128, (atomic_128)) \
  X(isconst, (is_const)) \
  X(isown, (is_own_shared)) \
  X(mapa, (map_address)) \
  X(getctarank, (rank_of_address)) \
  X(setmaxnreg, (set_max_registers))
// clang-format on
