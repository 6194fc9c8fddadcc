// SPDX-License-Identifier: Apache-2.0
// What no driver here offers: external memory and semaphores, graphics resources, logs. One row
// each; functions.h says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_ABSENT(F, S, D, T, A, P, H) \
  A(cudaGetExportTable, (const void** table, const cudaUUID_t* id))
// clang-format on
