// SPDX-License-Identifier: Apache-2.0
// Module images that the software GPU takes: several texts to link, fat binaries.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/ptx/fat_binary.h"
#include "kernels/ptx/link.h"
#include "kernels/ptx/module.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {

// Modules with a line of percent signs between them.
bool check_link(std::string_view text) {
  static constexpr std::string_view kBetween = "\n%%\n";
  std::vector<std::string> modules;
  for (;;) {
    const std::size_t end = text.find(kBetween);
    modules.emplace_back(text.substr(0, end));
    if (end == text.npos) break;
    text.remove_prefix(end + kBetween.size());
  }
  auto joined = ptx::join_ptx(modules);
  if (!joined) return refused(joined.error());
  auto module = ptx::Module::parse(*joined);
  require(static_cast<bool>(module), "joined modules are a module",
          module ? "" : module.error().message + "\n" + *joined);
  return true;
}

// The header's length is what the loader has to believe; it is cut to what is there. A wrapper's
// magic stands for a wrapper around what follows.
bool check_fat_binary(std::string_view bytes) {
  struct Wrapper {
    std::uint32_t magic, version;
    const void* data;
    const void* more;
  };
  std::uint32_t magic = 0;
  if (bytes.size() < 4) return false;
  std::memcpy(&magic, bytes.data(), 4);
  const bool wrapped = magic == 0x466243b1;
  if (wrapped) bytes.remove_prefix(4);
  if (bytes.size() < 16) return false;
  std::vector<char> image(bytes.begin(), bytes.end());
  std::uint16_t header_bytes;
  std::uint64_t length;
  std::memcpy(&header_bytes, image.data() + 6, 2);
  std::memcpy(&length, image.data() + 8, 8);
  const std::uint64_t there = image.size() - std::min<std::size_t>(image.size(), header_bytes);
  if (header_bytes >= 16 && header_bytes <= image.size() && length > there)
    std::memcpy(image.data() + 8, &there, 8);
  std::memcpy(&magic, image.data(), 4);
  if (magic == 0x466243b1) return false;  // a wrapper in a wrapper is refused before it is followed
  const Wrapper wrapper{0x466243b1, 1, image.data(), nullptr};
  const void* what = wrapped ? static_cast<const void*>(&wrapper) : image.data();
  auto text = ptx::ptx_of_fat_binary(what, 90);
  if (!text) return refused(text.error());
  require(text->find('\0') == std::string::npos, "PTX is text", "");
  return true;
}

}  // namespace sluice::fuzz
