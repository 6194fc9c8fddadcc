// SPDX-License-Identifier: Apache-2.0
#include "kernels/cubin/attach.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "abi/cuda_driver.h"
#include "kernels/cubin/cubin.h"

namespace sluice::cubin {
namespace {

template <class T>
void put(std::string* to, const T& value) {
  to->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void pad(std::string* to, uint64_t alignment) {
  to->resize((to->size() + alignment - 1) / alignment * alignment);
}

// Where the contents end, if both tables stand behind them, as NVIDIA's compilers have it.
size_t end_of_contents(const Elf64_Ehdr& h, const std::vector<Elf64_Shdr>& sections, size_t bytes) {
  const uint64_t end = h.e_phnum == 0 ? h.e_shoff : std::min(h.e_shoff, h.e_phoff);
  for (const Elf64_Shdr& s : sections)
    if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL && s.sh_offset + s.sh_size > end)
      return bytes;
  return end;
}

}  // namespace

// cubin::read() has checked all places that are used here.
Result<std::string> attach_ptx(std::string_view image, std::string_view ptx) {
  const auto known = read(image);
  if (!known) return known.error();
  if (!known->ptx.empty()) return Error{CUDA_ERROR_INVALID_VALUE, "a cubin that has its PTX"};
  Elf64_Ehdr h;
  std::memcpy(&h, image.data(), sizeof h);
  if (h.e_shnum + 1 >= SHN_LORESERVE)
    return Error{CUDA_ERROR_INVALID_IMAGE, "a cubin with no room for another section"};
  std::vector<Elf64_Shdr> sections(h.e_shnum);
  std::memcpy(sections.data(), image.data() + h.e_shoff, h.e_shnum * sizeof sections[0]);
  std::vector<Elf64_Phdr> segments(h.e_phnum);
  if (!segments.empty())
    std::memcpy(segments.data(), image.data() + h.e_phoff, h.e_phnum * sizeof segments[0]);

  const size_t contents = end_of_contents(h, sections, image.size());
  std::string to(image.substr(0, contents));
  Elf64_Shdr text{};
  text.sh_type = SHT_PROGBITS;
  text.sh_addralign = 1;
  text.sh_offset = to.size();
  text.sh_size = ptx.size();
  to += ptx;
  Elf64_Shdr& names = sections[h.e_shstrndx];
  const std::string_view old_names = image.substr(names.sh_offset, names.sh_size);
  names.sh_offset = to.size();
  text.sh_name = static_cast<uint32_t>(old_names.size());
  to += old_names;
  to += kPtxSection;
  to += '\0';
  names.sh_size = to.size() - names.sh_offset;
  sections.push_back(text);

  pad(&to, alignof(Elf64_Shdr));
  h.e_shoff = to.size();
  h.e_shnum = static_cast<uint16_t>(sections.size());
  for (const Elf64_Shdr& s : sections) put(&to, s);
  if (contents != image.size() && !segments.empty()) {  // then the segments' table moves, too
    const uint64_t old = h.e_phoff;
    h.e_phoff = to.size();
    for (Elf64_Phdr& p : segments) {
      if (p.p_offset == old) p.p_offset = h.e_phoff;  // those that are the table itself
      put(&to, p);
    }
  }
  std::memcpy(to.data(), &h, sizeof h);
  return to;
}

}  // namespace sluice::cubin
