// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/images/fat_binary.h"

#ifdef SLUICE_HAVE_LZ4
#include <lz4.h>
#endif
#ifdef SLUICE_HAVE_ZSTD
#include <zstd.h>
#endif

#include <cstring>
#include <string_view>

#include "abi/cuda_driver.h"

namespace sluice::ptx {
namespace {

constexpr uint32_t kMagic = 0xba55'ed50, kWrapperMagic = 0x4662'43b1;
// More than any program has: what claims more is no fat binary.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
// The largest PTX that the scanner takes; more than any cubin of a program.
constexpr uint64_t kMostText = uint64_t{64} << 20, kMostCode = uint64_t{256} << 20;

// The layout as nvcc 13.0 writes it (also documented by public extractors, for example
// n-eiling/cuda-fatbin-decompression).
struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* more;
};
struct Header {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of the entries
};
struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t payload_bytes;  // to the next entry
  uint32_t compressed_bytes, options_at;
  uint16_t minor, major;  // of the PTX
  uint32_t sm;
  uint64_t unknown;
  uint64_t flags;
  uint64_t unknown2;
  uint64_t text_bytes;  // once decompressed
};
static_assert(sizeof(Header) == 16 && sizeof(Entry) == 64);
constexpr uint16_t kKindPtx = 1, kKindCubin = 2, kKindLto = 8;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;

// Of the list of what does not fit, bytes: for people.
constexpr size_t kMostOthers = 200;

Error no_binary(std::string why) { return Error{CUDA_ERROR_NO_BINARY_FOR_GPU, std::move(why)}; }

std::string_view name_of(uint16_t kind) {
  switch (kind) {
    case kKindPtx:
      return "PTX";
    case kKindCubin:
      return "machine code";
    case kKindLto:
      return "intermediate code of -dlto, which has to be linked first,";
    default:
      return "code of an unknown kind";
  }
}

// PTX or machine code, as it was before nvcc compressed it.
Result<std::string> contents_of(const Entry& entry, const char* payload) {
  const uint64_t flags = entry.flags & (kFlagLz4 | kFlagZstd);
  const uint64_t most = entry.kind == kKindPtx ? kMostText : kMostCode;
  std::string text;
  if (flags == 0) {
    text.assign(payload, entry.payload_bytes);
  } else {
    if (entry.text_bytes == 0 || entry.text_bytes > most ||
        entry.compressed_bytes > entry.payload_bytes)
      return Error{CUDA_ERROR_INVALID_IMAGE, "a fat binary's entry has impossible sizes"};
    text.resize(entry.text_bytes);
    uint64_t made = 0;
    if (flags == kFlagLz4) {
#ifdef SLUICE_HAVE_LZ4
      const int n =
          LZ4_decompress_safe(payload, text.data(), static_cast<int>(entry.compressed_bytes),
                              static_cast<int>(text.size()));
      made = n < 0 ? 0 : static_cast<uint64_t>(n);
#else
      return no_binary(
          "the fat binary's code is compressed with LZ4, which this build cannot undo");
#endif
    } else {
#ifdef SLUICE_HAVE_ZSTD
      const size_t n = ZSTD_decompress(text.data(), text.size(), payload, entry.compressed_bytes);
      made = ZSTD_isError(n) ? 0 : n;
#else
      return no_binary(
          "the fat binary's code is compressed with zstd, which this build cannot undo");
#endif
    }
    if (made != text.size())
      return Error{CUDA_ERROR_INVALID_IMAGE, "a fat binary's code does not decompress"};
  }
  return text;
}

struct Found {
  Entry entry{};
  const char* payload = nullptr;  // null: nothing fits
  std::string others;             // what does not fit, in words
};

// The entry of `kind` for the newest GPU that `fits`.
template <class Fits>
Result<Found> find_entry(const void* image, uint64_t bytes, uint16_t kind, Fits fits) {
  uint32_t magic;
  std::memcpy(&magic, image, sizeof magic);
  if (bytes < sizeof(Header)) return Error{CUDA_ERROR_INVALID_IMAGE, "not a fat binary"};
  if (magic == kWrapperMagic && bytes == kUnknownBytes) {
    Wrapper wrapper;
    std::memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.data == nullptr) return Error{CUDA_ERROR_INVALID_IMAGE, "an empty fat binary"};
    image = wrapper.data;
  }
  Header header;
  std::memcpy(&header, image, sizeof header);
  if (header.magic != kMagic || header.header_bytes != sizeof header || header.bytes > kMostBytes)
    return Error{CUDA_ERROR_INVALID_IMAGE, "not a fat binary"};
  if (header.bytes > bytes - sizeof header)
    return Error{CUDA_ERROR_INVALID_IMAGE, "a fat binary that was cut off"};
  const auto* at = static_cast<const char*>(image) + header.header_bytes;
  Found best;
  for (uint64_t left = header.bytes; left >= sizeof(Entry);) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.header_bytes < sizeof entry || entry.header_bytes > left ||
        entry.payload_bytes > left - entry.header_bytes)
      return Error{CUDA_ERROR_INVALID_IMAGE, "a fat binary's entry is longer than it"};
    if (entry.kind == kind && fits(entry.sm) &&
        (best.payload == nullptr || entry.sm > best.entry.sm)) {
      best.entry = entry;
      best.payload = at + entry.header_bytes;
    } else if (best.others.size() < kMostOthers) {
      best.others += (best.others.empty() ? "" : ", ") + std::string(name_of(entry.kind)) +
                     " for sm_" + std::to_string(entry.sm);
    }
    const uint64_t whole = entry.header_bytes + entry.payload_bytes;
    at += whole;
    left -= whole;
  }
  return best;
}

Result<std::string> ptx_in(const Entry& entry, const char* payload) {
  auto text = contents_of(entry, payload);
  if (text) text->resize(::strnlen(text->data(), text->size()));  // padded with zeros
  return text;
}

}  // namespace

bool is_fat_binary(uint32_t magic) { return magic == kMagic || magic == kWrapperMagic; }

Result<std::string> ptx_of_fat_binary(const void* image, uint32_t newest, uint64_t bytes) {
  auto found = find_entry(image, bytes, kKindPtx, [&](uint32_t sm) { return sm <= newest; });
  if (!found) return found.error();
  if (found->payload == nullptr)
    return no_binary("the fat binary has no PTX for sm_" + std::to_string(newest) +
                     " or older, only " + (found->others.empty() ? "nothing" : found->others));
  return ptx_in(found->entry, found->payload);
}

PackedPtx packed_ptx_of_fat_binary(const void* image, uint32_t newest, uint64_t bytes) {
  auto found = find_entry(image, bytes, kKindPtx, [&](uint32_t sm) { return sm <= newest; });
  if (!found || found->payload == nullptr || found->entry.payload_bytes > kMostText) return {};
  std::string entry(reinterpret_cast<const char*>(&found->entry), sizeof found->entry);
  return PackedPtx(entry.append(found->payload, found->entry.payload_bytes));
}

Result<std::string> PackedPtx::unpack() const {
  if (entry_.size() < sizeof(Entry)) return no_binary("there is no PTX");
  Entry entry;
  std::memcpy(&entry, entry_.data(), sizeof entry);
  return ptx_in(entry, entry_.data() + sizeof entry);
}

// Machine code runs on later GPUs of its generation, 8.6's on 8.9, and on no other.
Result<std::string> cubin_of_fat_binary(const void* image, uint32_t newest, uint64_t bytes) {
  auto found = find_entry(image, bytes, kKindCubin,
                          [&](uint32_t sm) { return sm <= newest && sm / 10 == newest / 10; });
  if (!found) return found.error();
  if (found->payload == nullptr)
    return no_binary("the fat binary has no machine code for sm_" + std::to_string(newest) +
                     ", only " + (found->others.empty() ? "nothing" : found->others));
  return contents_of(found->entry, found->payload);
}

}  // namespace sluice::ptx
