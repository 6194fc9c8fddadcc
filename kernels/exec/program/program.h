// SPDX-License-Identifier: Apache-2.0
// Program: one PTX module decoded for execution. Immutable after decode(), so any number of threads
// and contexts share it. Image: a Program whose module-scope variables have got addresses.
//
// Who owns it: whoever loaded the module (softgpu's module table), by shared_ptr; Blocks keep the
// Image alive. Does not: allocate device memory, link several modules, touch files or CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/exec/memory/fault.h"
#include "mediator/base/result.h"

namespace sluice::ptx {
class Module;
}

namespace sluice::exec {

// What a hostile module may cost. Raising any of these costs only memory and load time.
struct DecodeOptions {
  uint32_t max_instructions = 2u << 20;          // about 64 bytes each while decoding
  uint64_t max_constant_bytes = 256ull << 20;    // 128 or 256 for each different immediate
  uint64_t max_initialized_bytes = 64ull << 20;  // of one module variable
  uint32_t max_register_slots = 16384;  // 32-bit registers live at once; 128 bytes per warp
  // What this interpreter does not carry out, or does not understand, costs only the kernels that
  // reach it (EntryInfo::refused), not the module. What no PTX has always costs the module: an
  // unknown instruction, a name that is not declared.
  bool refuse_kernels_alone = false;
};

struct ParamInfo {
  std::string name;
  uint32_t offset = 0;  // in the parameter block, as the driver API lays it out
  uint32_t bytes = 0;
  uint32_t align = 1;
};

struct EntryInfo {
  std::string name;
  std::vector<ParamInfo> params;
  uint32_t param_bytes = 0;                // total, with no padding at the end
  uint32_t static_shared_bytes = 0;        // dynamic shared memory begins after it, 16-byte aligned
  uint32_t local_bytes = 0;                // per thread, with the called functions' frames
  bool dynamic_stack = false;              // and with recursion or alloca, which take more
  uint32_t registers = 0;                  // estimate of 32-bit registers per thread, 16..255
  uint32_t max_threads = 0;                // from .maxntid/.reqntid; 0: not given
  uint32_t required_block[3] = {0, 0, 0};  // .reqntid; zeros: not given
  uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster; zeros: not given
  uint32_t max_cluster_blocks = 0;           // .maxclusterrank; 0: not given
  bool explicit_cluster = false;             // .explicitcluster: the launch has to name a size
  bool blocks_are_clusters = false;          // .blocksareclusters: a launch's grid counts clusters
  uint32_t line = 0;                         // of the entry in the PTX text
  std::string refused;                       // why it cannot be launched, for people; empty: it can
};

enum class SymbolSpace : uint8_t { kGlobal, kConst };

// A pointer inside an initialiser: the address of another symbol (or of a function), plus addend,
// from bit `shift` on, stored little-endian in `width` bytes at `offset`.
struct Relocation {
  uint64_t offset = 0;
  int64_t addend = 0;
  uint32_t target = 0;  // index into symbols(), or into functions when `function`
  uint8_t width = 8;    // 8, or one byte of it: 0xff00(name)
  uint8_t shift = 0;
  bool function = false;
};

struct SymbolInfo {
  std::string name;
  SymbolSpace space = SymbolSpace::kGlobal;
  uint64_t bytes = 0;
  uint32_t align = 1;
  std::vector<uint8_t> initial;  // may be shorter than `bytes`: the rest is zero
  std::vector<Relocation> relocations;
  bool external = false;  // .extern: somebody else's; must be given an address
  bool managed = false;   // the host may touch it, too
};

namespace detail {
struct ProgramData;
struct ImageData;
}  // namespace detail

class Program {
 public:
  explicit Program(std::unique_ptr<detail::ProgramData> data);
  ~Program();
  std::span<const EntryInfo> entries() const;
  const EntryInfo* find_entry(std::string_view name) const;
  // What a pointer to a kernel, in kKernelWindow, points to; null: nothing.
  const EntryInfo* kernel_at(uint64_t address) const;
  bool launches_kernels() const;  // or copies, fills or asks, by calls of its own
  std::span<const SymbolInfo> symbols() const;
  const detail::ProgramData& data() const { return *data_; }

 private:
  std::unique_ptr<detail::ProgramData> data_;
};

// Decodes the whole module, or says what in it is not supported ("line 12: tex.cube is not
// supported"). Pure; any thread.
Result<std::shared_ptr<const Program>> decode(const ptx::Module& module,
                                              const DecodeOptions& options = {});
// Scans and decodes.
Result<std::shared_ptr<const Program>> decode_text(std::string_view text,
                                                   const DecodeOptions& options = {});

class Image {
 public:
  ~Image();
  // symbol_addresses: one per program->symbols(), each of at least that symbol's bytes and align.
  // Does not write to them: see initial_values().
  static Result<std::shared_ptr<const Image>> make(std::shared_ptr<const Program> program,
                                                   std::span<const uint64_t> symbol_addresses);
  const Program& program() const { return *program_; }
  uint64_t symbol_address(size_t index) const { return addresses_[index]; }
  // What symbol `index` holds when the module has just been loaded: exactly its `bytes`.
  std::vector<uint8_t> initial_values(size_t index) const;
  const detail::ImageData& data() const { return *data_; }

 private:
  Image() = default;
  std::shared_ptr<const Program> program_;
  std::vector<uint64_t> addresses_;
  std::unique_ptr<detail::ImageData> data_;
};

}  // namespace sluice::exec
