// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 of random kernels, with nothing of kernels/exec: every finite f16 is an integer
// multiple of 2^-24, so what PTX asks for follows from exact integers, rounded to nearest even
// once. NaNs are those that PTX makes (0x7fff). Pure; any thread.
#pragma once

#include <cstdint>

namespace sluice::random_kernels {

bool half_nan(uint16_t h);
// a * b, plus c where `add`.
uint16_t half_fma(uint16_t a, uint16_t b, uint16_t c, bool add);
uint16_t half_add(uint16_t a, uint16_t b);
uint16_t half_negate(uint16_t a);
uint16_t half_of_float(float v);
float float_of_half(uint16_t h);
// `f` of both halves of .f16x2 values.
uint64_t half_pair(uint64_t a, uint64_t b, uint64_t c, uint16_t (*f)(uint16_t, uint16_t, uint16_t));
uint64_t bf16_of_float(float v);

}  // namespace sluice::random_kernels
