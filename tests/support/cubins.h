// SPDX-License-Identifier: Apache-2.0
// Cubins put together by hand, as nvcc 13.0 lays them out: a section of code for each kernel, one
// with the places of its parameters, and, if a test wants it to run on the software GPU, the PTX
// (kernels/cubin/cubin.h).
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace sluice::test {

class CubinBuilder {
 public:
  CubinBuilder() {
    add_section("", SHT_NULL, "");
    add_section(".shstrtab", SHT_STRTAB, "");
    add_section(".strtab", SHT_STRTAB, "");
    add_section(".symtab", SHT_SYMTAB, "");
    add_symbol("", 0, 0, 0, 0);
  }
  // `params`: offset and bytes of each. `block`: sides of the only one that it runs in.
  CubinBuilder& kernel(const std::string& name,
                       const std::vector<std::pair<uint16_t, uint32_t>>& params,
                       const std::vector<uint32_t>& block = {}) {
    std::string info;
    if (!block.empty()) {
      put<uint8_t>(info, 4), put<uint8_t>(info, 0x10);
      put<uint16_t>(info, static_cast<uint16_t>(4 * block.size()));
      for (uint32_t side : block) put<uint32_t>(info, side);
    }
    for (size_t i = params.size(); i-- != 0;) {  // nvcc writes the last one first
      put<uint8_t>(info, 4), put<uint8_t>(info, 0x17), put<uint16_t>(info, 12);
      put<uint32_t>(info, 0), put<uint16_t>(info, static_cast<uint16_t>(i));
      put<uint16_t>(info, params[i].first), put<uint32_t>(info, params[i].second << 18 | 0x1f000);
    }
    add_section(".nv.info." + name, 0x70000000, info);
    const uint16_t code = add_section(".text." + name, SHT_PROGBITS, std::string(128, '\0'));
    sections_[code].header.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
    add_symbol(name, STB_GLOBAL << 4 | STT_FUNC, 0x10, code, 128);
    return *this;
  }
  CubinBuilder& variables(uint64_t bytes) {
    Elf64_Shdr& s = sections_[add_section(".nv.global", SHT_NOBITS, "")].header;
    s.sh_flags = SHF_ALLOC | SHF_WRITE;
    s.sh_size = bytes;
    return *this;
  }
  // `type`: STT_*, or NVIDIA's. `section` 0: it is defined elsewhere.
  CubinBuilder& symbol(const std::string& name, int type, int other, uint16_t section) {
    add_symbol(name, STB_GLOBAL << 4 | type, other, section, 0);
    return *this;
  }
  CubinBuilder& ptx(const std::string& text) {
    add_section(".sluice.ptx", SHT_PROGBITS, text);
    return *this;
  }
  std::string image() const {
    std::vector<Section> sections = sections_;
    std::string names, strings(1, '\0'), symbols;
    for (Section& s : sections) {
      s.header.sh_name = static_cast<uint32_t>(names.size());
      names += s.name + '\0';
    }
    for (const auto& [name, symbol] : symbols_) {
      Elf64_Sym placed = symbol;
      placed.st_name = name.empty() ? 0 : static_cast<uint32_t>(strings.size());
      if (!name.empty()) strings += name + '\0';
      put(symbols, placed);
    }
    sections[1].contents = names, sections[2].contents = strings, sections[3].contents = symbols;
    sections[3].header.sh_link = 2;
    sections[3].header.sh_entsize = sizeof(Elf64_Sym);

    Elf64_Ehdr h{};
    std::memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64, h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_ident[EI_VERSION] = EV_CURRENT, h.e_ident[EI_OSABI] = 0x41, h.e_ident[EI_ABIVERSION] = 8;
    h.e_type = ET_EXEC, h.e_machine = 190, h.e_version = EV_CURRENT, h.e_flags = 90 << 8 | 4;
    h.e_ehsize = sizeof h, h.e_shentsize = sizeof(Elf64_Shdr), h.e_phentsize = sizeof(Elf64_Phdr);
    h.e_shnum = static_cast<uint16_t>(sections.size()), h.e_shstrndx = 1;
    std::string body;
    for (Section& s : sections) {
      s.header.sh_offset = sizeof h + body.size();
      if (s.header.sh_type != SHT_NOBITS) s.header.sh_size = s.contents.size();
      body += s.contents;
    }
    h.e_shoff = sizeof h + body.size();
    std::string image;
    put(image, h);
    image += body;
    for (const Section& s : sections) put(image, s.header);
    return image;
  }

 private:
  struct Section {
    std::string name, contents;
    Elf64_Shdr header{};
  };
  template <class T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  uint16_t add_section(const std::string& name, uint32_t type, const std::string& contents) {
    Section s{name, contents, {}};
    s.header.sh_type = type;
    s.header.sh_addralign = 1;
    sections_.push_back(s);
    return static_cast<uint16_t>(sections_.size() - 1);
  }
  void add_symbol(const std::string& name, int info, int other, uint16_t section, uint64_t bytes) {
    Elf64_Sym s{};
    s.st_info = static_cast<unsigned char>(info), s.st_other = static_cast<unsigned char>(other);
    s.st_shndx = section, s.st_size = bytes;
    symbols_.emplace_back(name, s);
  }
  std::vector<Section> sections_;
  std::vector<std::pair<std::string, Elf64_Sym>> symbols_;
};

}  // namespace sluice::test
