// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/workloads/workload.h"

#include <cstdio>

namespace sluice::suite {

namespace {

// Differences of which a verdict keeps the text.
constexpr std::uint64_t kShown = 4;

std::size_t bytes_of(Element element) {
  return element == Element::kF64 || element == Element::kU64 ? 8 : 4;
}

std::string text_of(Element element, const std::byte* at) {
  char text[64];
  std::uint64_t u64 = 0;
  std::uint32_t u32 = 0;
  double f64 = 0;
  float f32 = 0;
  if (bytes_of(element) == 8) {
    std::memcpy(&u64, at, 8);
    std::memcpy(&f64, at, 8);
  } else {
    std::memcpy(&u32, at, 4);
    std::memcpy(&f32, at, 4);
  }
  switch (element) {
    case Element::kF32:
      std::snprintf(text, sizeof(text), "%.9g (0x%08x)", double{f32}, u32);
      break;
    case Element::kF64:
      std::snprintf(text, sizeof(text), "%.17g (0x%016llx)", f64,
                    static_cast<unsigned long long>(u64));
      break;
    case Element::kU32:
      std::snprintf(text, sizeof(text), "%u (0x%08x)", u32, u32);
      break;
    case Element::kU64:
      std::snprintf(text, sizeof(text), "%llu (0x%016llx)", static_cast<unsigned long long>(u64),
                    static_cast<unsigned long long>(u64));
      break;
  }
  return text;
}

}  // namespace

void Workload::compare_element(Element element, std::span<const std::byte> want,
                               std::span<const std::byte> got, std::uint64_t index,
                               Verdict& verdict) {
  const std::size_t width = bytes_of(element);
  const std::byte* const wanted = want.data() + index * width;
  const std::byte* const found = got.data() + index * width;
  if (std::memcmp(wanted, found, width) == 0) return;
  if (verdict.wrong_elements++ < kShown) {
    verdict.first += "\n  [" + std::to_string(index) + "] got " + text_of(element, found) +
                     ", want " + text_of(element, wanted);
  }
}

Verdict Workload::compare(std::span<const std::byte> want, std::span<const std::byte> got) const {
  Verdict verdict;
  if (want.size() != got.size()) {
    verdict.wrong_elements = 1;
    verdict.first = "\n  lengths differ";
    return verdict;
  }
  if (std::memcmp(want.data(), got.data(), want.size()) == 0) return verdict;
  const std::uint64_t count = want.size() / bytes_of(element());
  for (std::uint64_t i = 0; i < count; ++i) compare_element(element(), want, got, i, verdict);
  return verdict;
}

std::uint32_t blocks_for(std::uint64_t n, std::uint64_t per_block) {
  const std::uint64_t blocks = n / per_block + (n % per_block != 0 ? 1 : 0);
  if (blocks > 0x7fffffffu) throw UsageError("--size is too large for one grid");
  return static_cast<std::uint32_t>(blocks);
}

}  // namespace sluice::suite
