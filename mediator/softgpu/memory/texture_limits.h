// SPDX-License-Identifier: Apache-2.0
// How large arrays and textures may be, as an H200 has it (cudaDeviceProp::maxTexture...): the
// device's attributes report these, creation of anything beyond fails. In texels; no state.
#pragma once

#include <cstddef>

namespace sluice::softgpu {

inline constexpr size_t kMax1d = 131072, kMax2dWidth = 131072, kMax2dHeight = 65536, kMax3d = 16384,
                        kMaxLayers = 2048, kMaxCube = 32768, kMaxCubeFaces = 2046 * 6;
inline constexpr size_t kMaxLinearTexels = size_t{1} << 28, kMaxPitchWidth = 131072,
                        kMaxPitchHeight = 65000;

}  // namespace sluice::softgpu
