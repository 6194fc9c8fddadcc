// SPDX-License-Identifier: Apache-2.0
// Formats of arrays' elements, and the driver's descriptions of arrays and textures, in our own
// declarations: layouts are facts from CUDA 13.0's driver API. No state.
#pragma once

#include "guest-agent/cudart/driver.h"
#include "guest-agent/cudart/types.h"

namespace sluice::cudart {

enum ElementFormat : int {
  kUnsigned8 = 0x01,
  kUnsigned16 = 0x02,
  kUnsigned32 = 0x03,
  kSigned8 = 0x08,
  kSigned16 = 0x09,
  kSigned32 = 0x0a,
  kHalf = 0x10,
  kFloat = 0x20,
  // Integers that are always read as numbers of [0, 1] or [-1, 1]: unsigned of 8 and 16 bits,
  // signed of 8 and 16, each of 1, 2 and 4 channels. The runtime's kinds are in the same order.
  kUnsignedNormalized8X1 = 0xc0,
  kSignedNormalized16X4 = 0xcb
};
struct Elements {
  int format;  // ElementFormat
  unsigned channels;
};

// CUDA_ARRAY3D_DESCRIPTOR
struct ArrayDescription {
  size_t width;
  size_t height;
  size_t depth;
  int format;
  unsigned channels;
  unsigned flags;
};
// CUDA_RESOURCE_DESC
struct DriverResource {
  int type;
  union {
    void* array;
    void* mipmap;
    struct {
      void* address;
      int format;
      unsigned channels;
      size_t bytes;
    } linear;
    struct {
      void* address;
      int format;
      unsigned channels;
      size_t width;
      size_t height;
      size_t pitch;
    } pitched;
    int reserved[32];
  };
  unsigned flags;
};
// CUDA_TEXTURE_DESC
struct DriverTexture {
  int address_mode[3];
  int filter_mode;
  unsigned flags;
  unsigned max_anisotropy;
  int mipmap_filter_mode;
  float mipmap_level_bias;
  float min_mipmap_level;
  float max_mipmap_level;
  float border_color[4];
  int reserved[12];
};
// CUDA_RESOURCE_VIEW_DESC
struct DriverView {
  int format;
  size_t width;
  size_t height;
  size_t depth;
  unsigned first_level;
  unsigned last_level;
  unsigned first_layer;
  unsigned last_layer;
  unsigned reserved[16];
};
enum DriverTextureFlags : unsigned {
  kReadAsInteger = 0x01,
  kNormalizedCoordinates = 0x02,
  kSrgb = 0x10,
  kNoTrilinearOptimization = 0x20,
  kSeamlessCubemap = 0x40
};

// False: no format of the driver's is like this.
bool to_elements(const cudaChannelFormatDesc& d, Elements* elements);
cudaChannelFormatDesc to_channels(int format, unsigned channels);
size_t bytes_of_format(int format);
CUresult describe_array(cudaArray_const_t array, ArrayDescription* d);

}  // namespace sluice::cudart
