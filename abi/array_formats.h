/* SPDX-License-Identifier: Apache-2.0 */
/* How large the texels of an array's format are. For the guest's library, the worker and the
 * software GPU, which must agree. Formats are plain numbers, because guests send them.
 */
#ifndef SLUICE_ABI_ARRAY_FORMATS_H
#define SLUICE_ABI_ARRAY_FORMATS_H

#include <cstdint>

#include "abi/cuda_texture.h"

namespace sluice {

// CU_AD_FORMAT_UNORM_INT8X1 and the others that say how many channels a texel has.
constexpr bool is_normalised_format(int format) {
  return format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4;
}

// Of the normalised formats, which are counted three by three: 1, 2 and 4 channels.
constexpr unsigned channels_of_normalised(int format) {
  return 1u << (format - CU_AD_FORMAT_UNORM_INT8X1) % 3;
}

// The format of the same bytes that is an integer until a texture makes a number of it.
constexpr int integer_format(int format) {
  if (!is_normalised_format(format)) return format;
  constexpr int kIntegers[] = {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16,
                               CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT16};
  return kIntegers[(format - CU_AD_FORMAT_UNORM_INT8X1) / 3];
}

// 0: no format that is known.
constexpr uint64_t channel_bytes(int format) {
  switch (integer_format(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

// 0: no such texel.
constexpr uint64_t texel_bytes(int format, unsigned channels) {
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  if (is_normalised_format(format) && channels_of_normalised(format) != channels) return 0;
  return channel_bytes(format) * channels;
}

}  // namespace sluice

#endif /* SLUICE_ABI_ARRAY_FORMATS_H */
