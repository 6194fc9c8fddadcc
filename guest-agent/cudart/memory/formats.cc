// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/cudart/memory/formats.h"

#include "abi/array_formats.h"

namespace sluice::cudart {
namespace {

// To the normalised format of a kind that says its size and channels itself.
constexpr int kKindToFormat =
    int{kUnsignedNormalized8X1} - int{cudaChannelFormatKindUnsignedNormalized8X1};

}  // namespace

bool to_elements(const cudaChannelFormatDesc& d, Elements* elements) {
  const int bits = d.x;
  const int sizes[] = {d.x, d.y, d.z, d.w};
  unsigned channels = 0;
  while (channels < 4 && sizes[channels] != 0) ++channels;
  for (unsigned i = 0; i < 4; ++i) {
    if (sizes[i] != (i < channels ? bits : 0)) return false;
  }
  if (channels == 0 || channels == 3) return false;
  elements->channels = channels;
  switch (d.f) {
    case cudaChannelFormatKindSigned:
      elements->format = bits == 8 ? kSigned8 : bits == 16 ? kSigned16 : kSigned32;
      return bits == 8 || bits == 16 || bits == 32;
    case cudaChannelFormatKindUnsigned:
      elements->format = bits == 8 ? kUnsigned8 : bits == 16 ? kUnsigned16 : kUnsigned32;
      return bits == 8 || bits == 16 || bits == 32;
    case cudaChannelFormatKindFloat:
      elements->format = bits == 16 ? kHalf : kFloat;
      return bits == 16 || bits == 32;
    default:
      if (d.f < cudaChannelFormatKindUnsignedNormalized8X1 ||
          d.f > cudaChannelFormatKindSignedNormalized16X4)
        return false;
      elements->format = d.f + kKindToFormat;
      return channels_of_normalised(elements->format) == channels &&
             bytes_of_format(elements->format) * 8 == static_cast<size_t>(bits);
  }
}

size_t bytes_of_format(int format) { return sluice::channel_bytes(format); }

cudaChannelFormatDesc to_channels(int format, unsigned channels) {
  const int bits = static_cast<int>(bytes_of_format(format)) * 8;
  const int kind = is_normalised_format(format)          ? format - kKindToFormat
                   : format == kHalf || format == kFloat ? cudaChannelFormatKindFloat
                   : format >= kSigned8                  ? cudaChannelFormatKindSigned
                                                         : cudaChannelFormatKindUnsigned;
  const auto size = [&](unsigned i) { return channels > i ? bits : 0; };
  return {size(0), size(1), size(2), size(3), bits == 0 ? cudaChannelFormatKindNone : kind};
}

CUresult describe_array(cudaArray_const_t array, ArrayDescription* d) {
  *d = {};
  return call_driver<ArrayDescription*, cudaArray_const_t>("cuArray3DGetDescriptor_v2", d, array);
}

}  // namespace sluice::cudart
