// SPDX-License-Identifier: Apache-2.0
#include "kernels/cubin/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "abi/cuda_driver.h"

namespace sluice::cubin {
namespace {

constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
constexpr uint8_t kSymbolEntry = 0x10;  // in st_other: the function is a kernel
constexpr uint8_t kSymbolManaged = 4;   // likewise: the variable is managed
// Types of symbols: references to textures, samplers and surfaces.
constexpr uint8_t kSymbolTexture = 10, kSymbolSurface = 12;
constexpr std::string_view kKernelRecords = ".nv.info.";  // and the kernel's name
// From this version of the ABI on (nvcc 12.8), e_flags have the GPU in their second byte.
constexpr uint8_t kAbiWithWideFlags = 8;
// As large as the driver's own libraries come; more is no cubin.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr uint64_t kMostParamBytes = 32764;
// Longer names are none: each is read once for each symbol that has it.
constexpr uint64_t kMostNameBytes = 8192;

// .nv.info: records of format, attribute and, by the format, a value or the length of one.
constexpr uint8_t kFormatSized = 4, kAttributeParam = 0x17, kAttributeLargeParam = 0x45;
constexpr uint8_t kAttributeBlock = 0x10, kAttributeBlocksAreClusters = 0x5b;  // ptxas 13.0
constexpr uint64_t kParamRecordBytes = 16;

Error bad(std::string what) {
  return Error{CUDA_ERROR_INVALID_IMAGE, "a cubin " + std::move(what)};
}

// Reads that cannot leave the image.
class Bytes {
 public:
  explicit Bytes(std::string_view image) : image_(image) {}
  bool has(uint64_t at, uint64_t bytes) const {
    return at <= image_.size() && bytes <= image_.size() - at;
  }
  // `at` was checked.
  template <class T>
  T get(uint64_t at) const {
    T value;
    std::memcpy(&value, image_.data() + at, sizeof value);
    return value;
  }
  std::string_view view(uint64_t at, uint64_t bytes) const { return image_.substr(at, bytes); }

 private:
  std::string_view image_;
};

// A name in a table of strings, which has to end within it.
std::optional<std::string_view> name_at(std::string_view table, uint64_t at) {
  if (at >= table.size()) return std::nullopt;
  const std::string_view rest = table.substr(at, kMostNameBytes);
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return rest.substr(0, end);
}

Error other_kind() {
  return Error{CUDA_ERROR_NO_BINARY_FOR_GPU, "an ELF file, but not of CUDA machine code"};
}

// Byte by byte, as a program may hand over what begins like a cubin and ends soon after.
bool is_for_cuda(const char* image) {
  constexpr unsigned char kIdent[] = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                                      ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
  for (size_t i = 0; i < sizeof kIdent; ++i)
    if (static_cast<unsigned char>(image[i]) != kIdent[i]) return false;
  uint16_t machine;
  std::memcpy(&machine, image + offsetof(Elf64_Ehdr, e_machine), sizeof machine);
  return machine == kMachineCuda;
}

bool header_is_right(const Elf64_Ehdr& h) {
  return h.e_ehsize == sizeof h && h.e_shentsize == sizeof(Elf64_Shdr) && h.e_shnum != 0 &&
         h.e_shstrndx < h.e_shnum && (h.e_phnum == 0 || h.e_phentsize == sizeof(Elf64_Phdr));
}

// Whether a section has bytes in the image. Where others say that they are means nothing, and is
// not checked: nothing is read there.
bool has_contents(const Elf64_Shdr& s) { return s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL; }

// The image with its tables, as far as it was checked.
class Reader {
 public:
  explicit Reader(std::string_view image) : bytes_(image), size_(image.size()) {}

  Result<Cubin> read() {
    if (auto r = read_header(); !r) return r.error();
    if (auto r = read_sections(); !r) return r.error();
    if (auto r = read_kernels(); !r) return r.error();
    for (Kernel& kernel : cubin_.kernels)
      if (auto r = read_params(&kernel); !r) return r.error();
    return std::move(cubin_);
  }

 private:
  Result<void> read_header() {
    if (!bytes_.has(0, sizeof header_)) return bad("that was cut off");
    if (!is_for_cuda(bytes_.view(0, sizeof header_).data())) return other_kind();
    header_ = bytes_.get<Elf64_Ehdr>(0);
    if (!header_is_right(header_)) return bad("with a header of no sense");
    if (!bytes_.has(header_.e_shoff, header_.e_shnum * sizeof(Elf64_Shdr)) ||
        !bytes_.has(header_.e_phoff, header_.e_phnum * sizeof(Elf64_Phdr)))
      return bad("whose tables are outside it");
    for (uint32_t i = 0; i < header_.e_phnum; ++i) {
      const auto p = bytes_.get<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr));
      if (!bytes_.has(p.p_offset, p.p_filesz)) return bad("with a segment outside it");
    }
    const bool wide = header_.e_ident[EI_ABIVERSION] >= kAbiWithWideFlags;
    cubin_.sm = wide ? header_.e_flags >> 8 & 0xff : header_.e_flags & 0xff;
    return {};
  }

  Result<void> read_sections() {
    sections_.reserve(header_.e_shnum);
    for (uint32_t i = 0; i < header_.e_shnum; ++i) {
      const auto s = bytes_.get<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
      if (has_contents(s) && !bytes_.has(s.sh_offset, s.sh_size))
        return bad("with a section outside it");
      sections_.push_back(s);
    }
    const Elf64_Shdr& names = sections_[header_.e_shstrndx];
    if (names.sh_type != SHT_STRTAB) return bad("whose sections have no names");
    const std::string_view table = bytes_.view(names.sh_offset, names.sh_size);
    uint64_t device = 0;
    records_.reserve(sections_.size());
    for (uint32_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& s = sections_[i];
      const auto name = name_at(table, s.sh_name);
      if (!name) return bad("with a section whose name is outside it");
      if (name->starts_with(kKernelRecords))
        records_.emplace(name->substr(kKernelRecords.size()), i);
      // Padding counts: a section of one byte may ask to be aligned to a terabyte.
      if ((s.sh_flags & SHF_ALLOC) != 0 &&
          (__builtin_add_overflow(device, s.sh_size, &device) ||
           __builtin_add_overflow(device, s.sh_addralign, &device)))
        return bad("whose sections are larger than memory");
      if (*name == kPtxSection && has_contents(s)) cubin_.ptx = bytes_.view(s.sh_offset, s.sh_size);
    }
    cubin_.device_bytes = std::max<uint64_t>(device, size_);
    return {};
  }

  // Kernels are those functions of the symbol table that say so.
  Result<void> read_kernels() {
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_SYMTAB) continue;
      if (s.sh_entsize != sizeof(Elf64_Sym) || s.sh_size % sizeof(Elf64_Sym) != 0 ||
          s.sh_link >= sections_.size() || !first_use(s.sh_size) ||
          sections_[s.sh_link].sh_type != SHT_STRTAB)
        return bad("with a table of symbols that is none");
      const Elf64_Shdr& strings = sections_[s.sh_link];
      const std::string_view table = bytes_.view(strings.sh_offset, strings.sh_size);
      for (uint64_t at = 0; at < s.sh_size; at += sizeof(Elf64_Sym)) {
        const auto symbol = bytes_.get<Elf64_Sym>(s.sh_offset + at);
        const auto name = name_at(table, symbol.st_name);
        if (!name) return bad("with a symbol whose name is outside it");
        if (symbol.st_shndx >= sections_.size() && symbol.st_shndx < SHN_LORESERVE)
          return bad("with a symbol in no section");
        note_symbol(symbol, *name);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || (symbol.st_other & kSymbolEntry) == 0)
          continue;
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= sections_.size())
          return bad("with a kernel that has no code");
        const Elf64_Shdr& code = sections_[symbol.st_shndx];
        if (code.sh_type != SHT_PROGBITS || symbol.st_value > code.sh_size ||
            symbol.st_size > code.sh_size - symbol.st_value)
          return bad("with a kernel outside its code");
        if (!known_.insert(*name).second) return bad("with two kernels of one name");
        cubin_.kernels.push_back({*name, {}});
      }
    }
    return {};
  }

  void note_symbol(const Elf64_Sym& symbol, std::string_view name) {
    const uint8_t type = ELF64_ST_TYPE(symbol.st_info);
    if ((type == STT_OBJECT && (symbol.st_other & kSymbolManaged) != 0) ||
        (type >= kSymbolTexture && type <= kSymbolSurface))
      cubin_.managed_or_references = true;
    if (type == STT_FUNC && symbol.st_shndx == SHN_UNDEF) cubin_.undefined.push_back(name);
  }

  Result<void> read_params(Kernel* kernel) {
    const auto found = records_.find(kernel->name);
    if (found == records_.end()) return {};
    const Elf64_Shdr& s = sections_[found->second];
    if (!has_contents(s) || !first_use(s.sh_size))
      return bad("with no room for the records about its kernels");
    uint64_t at = s.sh_offset;
    for (uint64_t left = s.sh_size; left != 0;) {
      if (left < 4) return bad("with half a record about a kernel");
      const auto format = bytes_.get<uint8_t>(at), attribute = bytes_.get<uint8_t>(at + 1);
      const uint64_t value = format == kFormatSized ? bytes_.get<uint16_t>(at + 2) : 0;
      if (value > left - 4) return bad("with a record about a kernel that is longer than all");
      if (format == kFormatSized &&
          (attribute == kAttributeParam || attribute == kAttributeLargeParam))
        if (auto r = read_param({at + 4, value, attribute}, s.sh_size / kParamRecordBytes, kernel);
            !r)
          return r;
      if (format == kFormatSized && attribute == kAttributeBlock && value == sizeof kernel->block)
        kernel->block = bytes_.get<std::array<uint32_t, 3>>(at + 4);
      if (attribute == kAttributeBlocksAreClusters) kernel->blocks_are_clusters = true;
      at += 4 + value;
      left -= 4 + value;
    }
    return {};
  }

  struct Record {
    uint64_t at, bytes;
    uint8_t attribute;
  };
  // index, ordinal, offset; then the size, in small records in the upper bits of a word. `most`: as
  // many parameters as there are records.
  Result<void> read_param(const Record& r, uint64_t most, Kernel* kernel) {
    if (r.bytes != kParamRecordBytes - 4) return bad("with half a parameter");
    const uint32_t ordinal = bytes_.get<uint16_t>(r.at + 4), word = bytes_.get<uint32_t>(r.at + 8);
    const bool large = r.attribute == kAttributeLargeParam;
    const Param param{bytes_.get<uint16_t>(r.at + 6), large ? word : word >> 18};
    if (ordinal >= most || param.bytes > kMostParamBytes ||
        param.offset > kMostParamBytes - param.bytes)
      return bad("with a parameter that no launch can pass");
    if (kernel->params.size() <= ordinal) kernel->params.resize(ordinal + 1);
    kernel->params[ordinal] = param;
    return {};
  }

  // Tables that overlap one another would take more memory and time than the image is long.
  bool first_use(uint64_t bytes) {
    return !__builtin_add_overflow(used_, bytes, &used_) && used_ <= size_;
  }

  Bytes bytes_;
  uint64_t size_, used_ = 0;
  std::unordered_set<std::string_view> known_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
  std::unordered_map<std::string_view, uint32_t> records_;  // sections about kernels, by name
  Cubin cubin_;
};

}  // namespace

bool is_cubin(uint32_t magic) { return std::memcmp(&magic, ELFMAG, SELFMAG) == 0; }

bool is_cubin(std::string_view image) { return image.starts_with(ELFMAG); }

Result<Cubin> read(std::string_view image) {
  if (image.size() > kMostBytes) return bad("of more than a gigabyte");
  return Reader(image).read();
}

Result<uint64_t> bytes_of(const void* image) {
  const auto* at = static_cast<const char*>(image);
  if (!is_for_cuda(at)) return other_kind();
  Elf64_Ehdr h;
  std::memcpy(&h, at, sizeof h);
  if (!header_is_right(h) || h.e_shoff > kMostBytes || h.e_phoff > kMostBytes)
    return bad("with a header of no sense");
  uint64_t end = std::max({uint64_t{sizeof h}, h.e_shoff + h.e_shnum * sizeof(Elf64_Shdr),
                           h.e_phoff + h.e_phnum * sizeof(Elf64_Phdr)});
  for (uint32_t i = 0; i < h.e_shnum; ++i) {
    Elf64_Shdr s;
    std::memcpy(&s, at + h.e_shoff + i * sizeof s, sizeof s);
    if (!has_contents(s)) continue;
    if (s.sh_offset > kMostBytes || s.sh_size > kMostBytes) return bad("with a section outside it");
    end = std::max<uint64_t>(end, s.sh_offset + s.sh_size);
  }
  if (end > kMostBytes) return bad("of more than a gigabyte");
  return end;
}

}  // namespace sluice::cubin
