// SPDX-License-Identifier: Apache-2.0
// Fat binaries that were cut off, or that claim what is not so. Which code is chosen out of one:
// tests/unit/softgpu/fat_binary_test.cc.
#include "kernels/ptx/images/fat_binary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tests/unit/softgpu/fat_binaries.h"

namespace sluice {
namespace {

const std::string kImages[] = {
    {reinterpret_cast<const char*>(kFatBinaryZstd), sizeof kFatBinaryZstd},
    {reinterpret_cast<const char*>(kFatBinaryLz4), sizeof kFatBinaryLz4}};
constexpr size_t kHeader = 16, kEntry = 64;
// Within the one entry.
constexpr size_t kPayloadBytes = 8, kCompressedBytes = 16, kTextBytes = 56;

template <class T>
void put(std::string& image, size_t at, T value) {
  std::memcpy(image.data() + at, &value, sizeof value);
}
// In memory of its own, so that a read beyond its end is found.
bool has_ptx(const std::string& image) {
  const auto copy = std::make_unique<char[]>(image.size());
  std::memcpy(copy.get(), image.data(), image.size());
  return ptx::ptx_of_fat_binary(copy.get(), 90, image.size()).ok();
}

TEST(FatBinary, CutOffAnywhere) {
  for (const std::string& image : kImages) {
    if (!has_ptx(image)) continue;  // built without this compression
    for (size_t bytes = 4; bytes < image.size(); ++bytes)
      EXPECT_FALSE(has_ptx(image.substr(0, bytes))) << bytes;
  }
}

TEST(FatBinary, PackedAndUnpackedLater) {
  for (const std::string& image : kImages) {
    std::string copy = image;
    const ptx::PackedPtx packed = ptx::packed_ptx_of_fat_binary(copy.data(), 90, copy.size());
    ASSERT_FALSE(packed.empty());
    copy.assign(copy.size(), '\0');  // it needs the image no more
    const auto later = packed.unpack(), now = ptx::ptx_of_fat_binary(image.data(), 90);
    ASSERT_EQ(later.ok(), now.ok());
    if (now) {
      EXPECT_EQ(*later, *now);
    }
    EXPECT_TRUE(ptx::packed_ptx_of_fat_binary(image.data(), 1).empty());
  }
  EXPECT_FALSE(ptx::PackedPtx().unpack().ok());
}

TEST(FatBinary, CutOffAnywhereWithSizesThatSaySo) {
  for (const std::string& image : kImages) {
    for (size_t bytes = kHeader + kEntry; bytes < image.size(); ++bytes) {
      std::string cut = image.substr(0, bytes);
      const auto payload = static_cast<uint32_t>(bytes - kHeader - kEntry);
      put(cut, 8, uint64_t{bytes - kHeader});
      put(cut, kHeader + kPayloadBytes, uint64_t{payload});
      put(cut, kHeader + kCompressedBytes, payload);
      EXPECT_FALSE(has_ptx(cut)) << bytes;
    }
  }
}

TEST(FatBinary, AnotherLengthThanItHasOnceDecompressed) {
  for (const std::string& image : kImages) {
    uint64_t right;
    std::memcpy(&right, image.data() + kHeader + kTextBytes, sizeof right);
    for (const uint64_t claimed :
         {uint64_t{0}, uint64_t{1}, right - 1, right + 1, uint64_t{1} << 20,
          (uint64_t{64} << 20) + 1, right + (uint64_t{1} << 32), ~uint64_t{0}}) {
      std::string lies = image;
      put(lies, kHeader + kTextBytes, claimed);
      EXPECT_FALSE(has_ptx(lies)) << claimed;
    }
  }
}

// What -dlto leaves in objects is neither PTX nor machine code.
TEST(FatBinary, WhatDoesNotFitIsNamed) {
  for (const auto& [kind, name] :
       {std::pair{2, "only machine code"}, {8, "code of -dlto"}, {77, "an unknown kind"}}) {
    std::string image = kImages[0];
    put(image, kHeader, static_cast<uint16_t>(kind));
    const auto none = ptx::ptx_of_fat_binary(image.data(), 90, image.size());
    ASSERT_FALSE(none.ok());
    EXPECT_NE(none.error().message.find(name), std::string::npos) << none.error().message;
  }
}

// What an error lists for people was 28 bytes of each entry.
TEST(FatBinary, EntriesWithoutNumberAreNotAllListed) {
  constexpr size_t kEntries = 100'000;
  std::string image = kImages[0].substr(0, kHeader);
  put(image, 8, uint64_t{kEntries * kEntry});
  std::string entry(kEntry, '\0');
  put(entry, 0, uint16_t{2});
  put(entry, 4, uint32_t{kEntry});
  for (size_t i = 0; i < kEntries; ++i) image += entry;
  const auto none = ptx::ptx_of_fat_binary(image.data(), 90, image.size());
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("machine code for sm_0"), std::string::npos);
  EXPECT_LT(none.error().message.size(), 1000u);
}

}  // namespace
}  // namespace sluice
