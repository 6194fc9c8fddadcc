// SPDX-License-Identifier: Apache-2.0
// Module images that the software GPU takes: several texts to link, fat binaries.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cubin/cubin.h"
#include "kernels/ptx/images/fat_binary.h"
#include "kernels/ptx/images/link.h"
#include "kernels/ptx/module.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {
namespace {

constexpr uint64_t kMostParamBytes = 32764;  // CUDA's limit

}  // namespace

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

// What is taken names nothing outside the image, and the length that a program's pointer alone
// gives is that of the image or less.
bool check_cubin(std::string_view bytes) {
  // In memory of its own, so that a sanitizer sees a read beyond the end.
  const std::vector<char> image(bytes.begin(), bytes.end());
  const std::string_view held(image.data(), image.size());
  auto cubin = cubin::read(held);
  if (!cubin) return refused(cubin.error());
  const auto inside = [&](std::string_view part) {
    return part.empty() ||
           (part.data() >= held.data() && part.size() <= held.size() - (part.data() - held.data()));
  };
  require(cubin->device_bytes >= held.size(), "no less is charged than the image", "");
  require(inside(cubin->ptx), "the text lies in the image", "");
  std::set<std::string_view> names;
  for (const cubin::Kernel& kernel : cubin->kernels) {
    require(inside(kernel.name), "a name lies in the image", "");
    require(names.insert(kernel.name).second, "a name stands for one kernel", kernel.name);
    for (const cubin::Param& param : kernel.params)
      require(uint64_t{param.offset} + param.bytes <= kMostParamBytes, "a launch can pass it",
              kernel.name);
  }
  const auto length = cubin::bytes_of(image.data());
  require(static_cast<bool>(length) && *length <= held.size(), "it ends where the image does", "");
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
