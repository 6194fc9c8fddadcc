// SPDX-License-Identifier: Apache-2.0
// The atomic operations on memory: X(name, (handler)); see ops_int.h. The space is in Inst::mod
// (kSpace...).
#pragma once

// clang-format off
#define SLUICE_EXEC_ATOMIC_OPS(X) \
  X(atom_add_b32, (atomic<u32, AtomAdd>)) \
  X(atom_add_b64, (atomic<u64, AtomAdd>)) \
  X(atom_add_f32, (atomic<u32, AtomAddF32>)) \
  X(atom_add_f64, (atomic<u64, AtomAddF64>)) \
  X(atom_min_u32, (atomic<u32, AtomMin<u32>>)) \
  X(atom_min_s32, (atomic<u32, AtomMin<s32>>)) \
  X(atom_min_u64, (atomic<u64, AtomMin<u64>>)) \
  X(atom_min_s64, (atomic<u64, AtomMin<s64>>)) \
  X(atom_max_u32, (atomic<u32, AtomMax<u32>>)) \
  X(atom_max_s32, (atomic<u32, AtomMax<s32>>)) \
  X(atom_max_u64, (atomic<u64, AtomMax<u64>>)) \
  X(atom_max_s64, (atomic<u64, AtomMax<s64>>)) \
  X(atom_and_b32, (atomic<u32, AtomAnd>)) \
  X(atom_and_b64, (atomic<u64, AtomAnd>)) \
  X(atom_or_b32, (atomic<u32, AtomOr>)) \
  X(atom_or_b64, (atomic<u64, AtomOr>)) \
  X(atom_xor_b32, (atomic<u32, AtomXor>)) \
  X(atom_xor_b64, (atomic<u64, AtomXor>)) \
  X(atom_exch_b32, (atomic<u32, AtomExch>)) \
  X(atom_exch_b64, (atomic<u64, AtomExch>)) \
  X(atom_inc_u32, (atomic<u32, AtomInc>)) \
  X(atom_dec_u32, (atomic<u32, AtomDec>)) \
  X(atom_cas_b16, (atomic_cas<u16>)) \
  X(atom_cas_b32, (atomic_cas<u32>)) \
  X(atom_cas_b64, (atomic_cas<u64>)) \
  X(atom_add_f16, (atomic<u16, AtomAddHalf<f16>>)) \
  X(atom_add_bf16, (atomic<u16, AtomAddHalf<bf16>>)) \
  X(atom_add_f16x2, (atomic<u32, AtomAddPair<f16>>)) \
  X(atom_add_bf16x2, (atomic<u32, AtomAddPair<bf16>>))
// clang-format on
