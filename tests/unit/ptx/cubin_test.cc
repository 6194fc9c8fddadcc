// SPDX-License-Identifier: Apache-2.0
// Cubins: what is read out of one, and that no byte of it is trusted.
#include "kernels/cubin/cubin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "abi/cuda_driver.h"
#include "kernels/cubin/attach.h"
#include "tests/support/cubins.h"

namespace sluice::cubin {
namespace {

// The fields of the header that the tests spoil.
constexpr size_t kSectionsAt = offsetof(Elf64_Ehdr, e_shoff);

std::string two_kernels() {
  return test::CubinBuilder()
      .kernel("mix", {{0, 4}, {4, 1}, {6, 2}, {16, 32}, {48, 8}})
      .kernel("none", {})
      .variables(4000)
      .image();
}

template <class T>
void set(std::string& image, size_t at, T value) {
  std::memcpy(image.data() + at, &value, sizeof value);
}
// Where header `index` of a section is.
size_t section(const std::string& image, size_t index) {
  uint64_t at;
  std::memcpy(&at, image.data() + kSectionsAt, sizeof at);
  return at + index * sizeof(Elf64_Shdr);
}
int error_of(const std::string& image) {
  auto r = read(image);
  return r ? 0 : r.error().code;
}

// A section without contents may have any offset: nothing is read there.
TEST(Cubin, SectionsWithoutContentsAreNotRead) {
  const std::string good = test::CubinBuilder().kernel("k", {{0, 4}}).ptx(".version 8.0").image();
  ASSERT_EQ(read(good)->ptx.substr(0, 8), ".version");
  uint16_t count;
  std::memcpy(&count, good.data() + offsetof(Elf64_Ehdr, e_shnum), sizeof count);
  for (const uint32_t type : {SHT_NOBITS, SHT_NULL})
    for (const uint64_t offset : {good.size() + 1, uint64_t{1} << 60, ~uint64_t{0}})
      for (size_t i = 0; i < count; ++i) {
        std::string image = good;
        set<uint32_t>(image, section(image, i) + offsetof(Elf64_Shdr, sh_type), type);
        set<uint64_t>(image, section(image, i) + offsetof(Elf64_Shdr, sh_offset), offset);
        const auto cubin = read(image);
        if (!cubin || cubin->ptx.empty()) continue;
        EXPECT_EQ(cubin->ptx.substr(0, 8), ".version") << "section " << i;
      }
}

TEST(Cubin, KernelsParametersAndMemory) {
  const std::string image = two_kernels();
  ASSERT_TRUE(is_cubin(std::string_view(image)));
  auto cubin = read(image);
  ASSERT_TRUE(cubin) << cubin.error().message;
  EXPECT_EQ(cubin->sm, 90u);
  ASSERT_EQ(cubin->kernels.size(), 2u);
  const Kernel& mix = cubin->kernels[0];
  EXPECT_EQ(mix.name, "mix");
  ASSERT_EQ(mix.params.size(), 5u);
  EXPECT_EQ(mix.params[1].offset, 4u);
  EXPECT_EQ(mix.params[1].bytes, 1u);
  EXPECT_EQ(mix.params[3].offset, 16u);
  EXPECT_EQ(mix.params[3].bytes, 32u);
  EXPECT_TRUE(cubin->kernels[1].params.empty());
  EXPECT_GE(cubin->device_bytes, 4000u + 256u) << "variables and code";
  EXPECT_TRUE(cubin->ptx.empty());
  auto bytes = bytes_of(image.data());
  ASSERT_TRUE(bytes);
  EXPECT_EQ(*bytes, image.size());
}

TEST(Cubin, TheBlockThatAKernelRunsIn) {
  const std::string image = test::CubinBuilder()
                                .kernel("one", {{0, 8}}, {32, 2, 1})
                                .kernel("any", {{0, 8}})
                                .kernel("half", {}, {32, 2})
                                .image();
  const auto cubin = read(image);
  ASSERT_TRUE(cubin) << cubin.error().message;
  EXPECT_EQ(cubin->kernels[0].block, (std::array<uint32_t, 3>{32, 2, 1}));
  EXPECT_EQ(cubin->kernels[0].params.size(), 1u);
  EXPECT_EQ(cubin->kernels[1].block[0], 0u);
  EXPECT_EQ(cubin->kernels[2].block[0], 0u) << "a record of another length says nothing";
}

// As nvcc 13.0 writes them: a managed variable is 4 in st_other, a texture 10 and a surface 12 by
// its type.
TEST(Cubin, WhatTheDriverDoesInItsOwnWay) {
  const auto with = [](int type, int other, uint16_t section) {
    return test::CubinBuilder().kernel("k", {}).symbol("it", type, other, section).image();
  };
  const auto is_special = [&](int type, int other, uint16_t section) {
    const std::string image = with(type, other, section);
    return read(image)->managed_or_references;
  };
  EXPECT_TRUE(is_special(STT_OBJECT, 4, 3));
  EXPECT_TRUE(is_special(10, 0, SHN_UNDEF));
  EXPECT_TRUE(is_special(12, 0, SHN_UNDEF));
  EXPECT_FALSE(is_special(STT_OBJECT, 0, 3));
  EXPECT_FALSE(is_special(STT_NOTYPE, 0xa0, 3)) << "what every cubin for sm_90 has";
  EXPECT_FALSE(is_special(STT_FUNC, 0, SHN_UNDEF));

  const std::string calls = with(STT_FUNC, 0, SHN_UNDEF), alone = two_kernels();
  ASSERT_EQ(read(calls)->undefined.size(), 1u);
  EXPECT_EQ(read(calls)->undefined[0], "it");
  EXPECT_TRUE(read(alone)->undefined.empty());
}

TEST(Cubin, WhatIsNoneIsRefused) {
  EXPECT_FALSE(is_cubin(std::string_view(".version 8.0")));
  EXPECT_EQ(bytes_of("\x7f"
                     "ELF and so on")
                .error()
                .code,
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  std::string other = two_kernels();
  set(other, offsetof(Elf64_Ehdr, e_machine), uint16_t{EM_X86_64});
  EXPECT_EQ(error_of(other), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(Cubin, WhatNamesAPlaceOutsideIsRefused) {
  const std::string good = two_kernels();
  const auto spoilt = [&](size_t at, auto value) {
    std::string image = good;
    set(image, at, value);
    return error_of(image);
  };
  constexpr int kInvalid = CUDA_ERROR_INVALID_IMAGE;
  EXPECT_EQ(spoilt(kSectionsAt, uint64_t{good.size()}), kInvalid);
  EXPECT_EQ(spoilt(kSectionsAt, ~uint64_t{0} - 63), kInvalid) << "and wraps around";
  EXPECT_EQ(spoilt(offsetof(Elf64_Ehdr, e_shnum), uint16_t{0xffff}), kInvalid);
  EXPECT_EQ(spoilt(offsetof(Elf64_Ehdr, e_phnum), uint16_t{0xffff}), kInvalid);
  EXPECT_EQ(spoilt(offsetof(Elf64_Ehdr, e_shstrndx), uint16_t{5}), kInvalid) << "no names";
  const size_t code = section(good, 5);
  EXPECT_EQ(spoilt(code + offsetof(Elf64_Shdr, sh_name), ~uint32_t{0}), kInvalid);
  EXPECT_EQ(spoilt(code + offsetof(Elf64_Shdr, sh_offset), ~uint64_t{0}), kInvalid);
  EXPECT_EQ(spoilt(code + offsetof(Elf64_Shdr, sh_size), uint64_t{1} << 40), kInvalid);
  EXPECT_EQ(spoilt(code + offsetof(Elf64_Shdr, sh_size), uint64_t{64}), kInvalid)
      << "a kernel longer than its code";
  const size_t symbols = section(good, 3);
  EXPECT_EQ(spoilt(symbols + offsetof(Elf64_Shdr, sh_link), uint32_t{1000}), kInvalid);
  EXPECT_EQ(spoilt(symbols + offsetof(Elf64_Shdr, sh_entsize), uint64_t{1}), kInvalid);
  EXPECT_EQ(error_of(good.substr(0, 10)), kInvalid);
  EXPECT_EQ(error_of(good.substr(0, good.size() - 1)), kInvalid);
}

TEST(Cubin, ParametersBeyondALaunchAreRefused) {
  const auto with = [](uint16_t offset, uint32_t bytes) {
    return error_of(test::CubinBuilder().kernel("k", {{offset, bytes}}).image());
  };
  EXPECT_EQ(with(0, 8), 0);
  EXPECT_EQ(with(65535, 8), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(error_of(test::CubinBuilder().kernel("k", {}).kernel("k", {}).image()),
            CUDA_ERROR_INVALID_IMAGE)
      << "two of one name";
}

TEST(Cubin, VariablesLargerThanMemoryAreRefusedOrCounted) {
  auto cubin_of = [](uint64_t bytes) {
    return test::CubinBuilder().variables(bytes).variables(bytes).image();
  };
  EXPECT_EQ(error_of(cubin_of(~uint64_t{0} / 2 + 1)), CUDA_ERROR_INVALID_IMAGE);
  const std::string large = cubin_of(uint64_t{1} << 40);
  auto counted = read(large);
  ASSERT_TRUE(counted);
  EXPECT_GE(counted->device_bytes, uint64_t{2} << 40);
}

// Tables that overlap would multiply: each of many symbol tables is all of the file.
TEST(Cubin, OverlappingTablesTakeNoMoreThanTheImage) {
  std::string image = two_kernels();
  const size_t table = section(image, 3), other = section(image, 5);
  for (size_t at : {other, section(image, 7)})
    std::memcpy(image.data() + at, image.data() + table, sizeof(Elf64_Shdr));
  EXPECT_NE(error_of(image), 0);
}

// The image ends where the allocation does, so that a sanitizer sees a read beyond it.
TEST(Cubin, RandomDamageIsRefusedOrHarmless) {
  const std::string good = two_kernels();
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    const size_t bytes = random() % 8 == 0 ? random() % (good.size() + 1) : good.size();
    const std::unique_ptr<char[]> exact(new char[bytes]);
    std::memcpy(exact.get(), good.data(), bytes);
    for (uint32_t n = random() % 6; n != 0 && bytes != 0; --n)
      exact[random() % bytes] = static_cast<char>(random());
    const std::string_view image(exact.get(), bytes);
    const auto cubin = read(image);
    if (!cubin) {
      ++refused;
      continue;
    }
    for (const Kernel& kernel : cubin->kernels) {
      EXPECT_GE(kernel.name.data(), image.data());
      EXPECT_LE(kernel.name.data() + kernel.name.size(), image.data() + image.size());
    }
    EXPECT_GE(cubin->device_bytes, image.size());
  }
  EXPECT_GT(refused, 2000);
}

// As NVIDIA's compilers write them: a table of segments behind that of sections, the first of which
// is the table itself.
std::string with_segments(std::string image) {
  image.resize((image.size() + 7) / 8 * 8);
  const uint64_t at = image.size();
  Elf64_Phdr table{}, code{};
  table.p_type = PT_PHDR, table.p_offset = at, table.p_filesz = 2 * sizeof table;
  code.p_type = PT_LOAD, code.p_offset = sizeof(Elf64_Ehdr), code.p_filesz = 128;
  for (const Elf64_Phdr& p : {table, code})
    image.append(reinterpret_cast<const char*>(&p), sizeof p);
  set(image, offsetof(Elf64_Ehdr, e_phoff), at);
  set(image, offsetof(Elf64_Ehdr, e_phnum), uint16_t{2});
  return image;
}

TEST(AttachPtx, WhatWasThereStaysInItsPlace) {
  const std::string ptx = ".version 8.0 // and so on";
  for (const std::string& before : {two_kernels(), with_segments(two_kernels())}) {
    const auto after = attach_ptx(before, ptx);
    ASSERT_TRUE(after) << after.error().message;
    const auto was = read(before), is = read(*after);
    ASSERT_TRUE(was && is);
    EXPECT_EQ(is->ptx, ptx);
    EXPECT_EQ(is->sm, was->sm);
    ASSERT_EQ(is->kernels.size(), was->kernels.size());
    for (size_t i = 0; i < is->kernels.size(); ++i) {
      EXPECT_EQ(is->kernels[i].name, was->kernels[i].name);
      EXPECT_EQ(is->kernels[i].params.size(), was->kernels[i].params.size());
    }
    EXPECT_EQ(*bytes_of(after->data()), after->size()) << "a program hands over a pointer only";
    Elf64_Ehdr a, b;
    std::memcpy(&a, before.data(), sizeof a);
    std::memcpy(&b, after->data(), sizeof b);
    ASSERT_EQ(b.e_shnum, a.e_shnum + 1);
    ASSERT_EQ(b.e_phnum, a.e_phnum);
    for (uint16_t i = 0; i < a.e_shnum; ++i) {
      Elf64_Shdr x, y;
      std::memcpy(&x, before.data() + section(before, i), sizeof x);
      std::memcpy(&y, after->data() + section(*after, i), sizeof y);
      if (i == a.e_shstrndx) continue;  // longer by a name
      EXPECT_EQ(std::memcmp(&x, &y, sizeof x), 0) << "section " << i;
      if (x.sh_type == SHT_NOBITS) continue;
      EXPECT_EQ(before.substr(x.sh_offset, x.sh_size), after->substr(y.sh_offset, y.sh_size));
    }
    if (a.e_phnum == 0) continue;
    Elf64_Phdr table, code;
    std::memcpy(&table, after->data() + b.e_phoff, sizeof table);
    std::memcpy(&code, after->data() + b.e_phoff + sizeof table, sizeof code);
    EXPECT_EQ(table.p_offset, b.e_phoff) << "it has moved";
    EXPECT_EQ(code.p_offset, sizeof(Elf64_Ehdr));
    EXPECT_EQ(b.e_phoff + 2 * sizeof table, after->size()) << "and is last, as it was";
  }
}

// Another compiler may put its tables first: they stay, and a new one comes behind everything.
TEST(AttachPtx, TablesInFrontStay) {
  std::string image = with_segments(two_kernels());
  const size_t strings = section(image, 2);  // contents behind both tables
  image += std::string("\0mix\0none\0", 10);
  set(image, strings + offsetof(Elf64_Shdr, sh_offset), uint64_t{image.size() - 10});
  set(image, strings + offsetof(Elf64_Shdr, sh_size), uint64_t{10});
  ASSERT_TRUE(read(image));
  const auto after = attach_ptx(image, "text");
  ASSERT_TRUE(after) << after.error().message;
  const auto is = read(*after);
  ASSERT_TRUE(is) << is.error().message;
  EXPECT_EQ(is->ptx, "text");
  EXPECT_EQ(is->kernels.size(), 2u);
  EXPECT_EQ(*bytes_of(after->data()), after->size());
}

TEST(AttachPtx, WhatIsNoCubinOrHasItsPtxIsRefused) {
  EXPECT_FALSE(attach_ptx("no cubin", "text"));
  const auto once = attach_ptx(two_kernels(), "text");
  ASSERT_TRUE(once);
  EXPECT_FALSE(attach_ptx(*once, "text"));
}

TEST(AttachPtx, OfDamagedImagesNothingOutsideIsRead) {
  const std::string good = with_segments(two_kernels());
  std::mt19937 random(11);
  int attached = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::unique_ptr<char[]> exact(new char[good.size()]);
    std::memcpy(exact.get(), good.data(), good.size());
    for (uint32_t n = random() % 4; n != 0; --n)
      exact[random() % good.size()] = static_cast<char>(random());
    const auto after = attach_ptx({exact.get(), good.size()}, "text");
    if (!after) continue;
    ++attached;
    const auto is = read(*after);
    if (is) {
      EXPECT_EQ(is->ptx, "text");
    }
  }
  EXPECT_GT(attached, 1000);
}

}  // namespace
}  // namespace sluice::cubin
