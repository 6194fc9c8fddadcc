// SPDX-License-Identifier: Apache-2.0
// Which CUDA runtime a library is: libcudart.so.13 or libcudart.so.12, built of the same sources.
#pragma once

namespace sluice::cudart {

#ifndef SLUICE_CUDART_MAJOR
#define SLUICE_CUDART_MAJOR 13
#endif
// What cudaRuntimeGetVersion answers: major * 1000 + minor * 10.
inline constexpr int kRuntimeVersion = SLUICE_CUDART_MAJOR == 12 ? 12090 : 13000;

}  // namespace sluice::cudart
