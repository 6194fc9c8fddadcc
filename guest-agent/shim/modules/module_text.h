// SPDX-License-Identifier: Apache-2.0
// From what a program hands to cuModuleLoad* to what goes to the worker: PTX found in the image,
// rewritten so that its kernels can be evicted (docs/internals/rewriter.md), or machine code as it
// is, whose kernels cannot. Pure but for reading files and the environment; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "abi/cuda_driver.h"
#include "guest-agent/shim/modules/texture_references.h"
#include "kernels/passes/rewrite.h"
#include "kernels/ptx/images/fat_binary.h"
#include "kernels/ptx/separate.h"

namespace sluice::guest {

// What the rewriter says of a kernel, as sluice_function_get carries it.
struct KernelFlags {
  uint32_t flags = 0;
  uint32_t state_bytes = 0;
};
// Kernels that run in blocks of one shape only (.reqntid), by name. Of .blocksareclusters, whose
// launches may leave it out, none.
using RequiredBlocks = std::unordered_map<std::string, std::array<uint32_t, 3>>;

KernelFlags flags_of(const passes::KernelReport& kernel);  // of one that is evictable

// A module's text, with what is known of its kernels.
struct Text {
  std::string original;   // or its machine code
  std::string machine;    // sent instead where it loads; empty: there is none, or it will not do
  std::string rewritten;  // empty: send the original
  std::string spare;      // machine code for when the PTX does not load; or empty
  ptx::PackedPtx packed;  // the original, where it is needed only if `machine` does not load
  // Its kernels' clones are made when they are launched (clones.h), from this. Null: they are in
  // `rewritten`.
  std::shared_ptr<const ptx::SeparableModule> separable;
  bool at_once = false;  // but not for launches whose blocks the GPU holds at once
  std::unordered_map<std::string, KernelFlags> kernels;
  std::vector<std::string> entries;  // names of all kernels, in the order of the text
  RequiredBlocks required_blocks;
  std::vector<std::string> managed;       // its managed variables (managed_variables.h)
  std::vector<ReferenceName> references;  // texture references (texture_references.h)
};

// The code in an image: points into it, or, out of a fat binary, into `kept`: PTX for the newest
// GPU not beyond compute capability `newest` (90: 9.0), and machine code if there is no such PTX.
// `bytes`: of a file's image; 0: unknown. `log` gets the words of an error.
CUresult code_of_image(const void* image, size_t bytes, uint32_t newest, std::string* kept,
                       std::string_view* code, std::string* log);
// The PTX that machine code carries (kernels/cubin/attach.h), if it has all of its kernels; else
// empty.
std::string ptx_in_machine_code(std::string_view machine);
// Machine code that was read.
struct MachineCode {
  std::string code;  // empty: none
  std::vector<std::string> entries;
  RequiredBlocks required_blocks;
  // Nothing in it is done by us instead of the driver's own way, so its PTX need not be looked at.
  bool stands_alone = false;
};
// What a fat binary has for that GPU.
MachineCode machine_code_in(const void* image, size_t bytes, uint32_t newest);
MachineCode read_machine_code(std::string code);
CUresult read_image_file(const char* path, std::string* image);

// A module's code as its image has it.
struct ModuleCode {
  std::string text;                // PTX, or machine code where there is no PTX; empty: `packed`
  MachineCode machine;             // beside the PTX
  ptx::PackedPtx packed;           // the PTX, where the machine code will do
  bool lazy = false;               // the host wants clones at a kernel's first launch
  bool originals_at_once = false;  // ... but not for one whose blocks the GPU holds at once
  bool originals = false;          // the host wants none at all
};

// Takes the machine code of a fat binary, and its PTX packed, where that is enough for a host that
// wants no clones: unpacking and searching the PTX takes half of what we do at a load. False: not
// so, and nothing was taken.
bool machine_code_will_do(const void* image, size_t bytes, uint32_t newest, ModuleCode* code);

// Rewrites PTX, or leaves that to the first launches, where the module allows it.
// SLUICE_REWRITE=off leaves modules as they are: their kernels can then not be evicted. With "all"
// launches that need no clones have them, too.
std::shared_ptr<const Text> make_text(ModuleCode code);

// Where cuModuleLoadDataEx's caller wants the compiler's words. Empties both buffers at first.
class JitLogs {
 public:
  JitLogs(unsigned count, CUjit_option* options, void** values);
  void fail(std::string_view text) const { write(error_, text); }
  // The program has given room for errors, so the user need not see them.
  bool has_room() const { return error_.to != nullptr && error_.bytes != 0; }

 private:
  struct Buffer {
    char* to = nullptr;
    size_t bytes = 0;
    void** size_slot = nullptr;  // CUDA returns the number of bytes written in the size's own slot
  };
  static void write(const Buffer& buffer, std::string_view text);
  Buffer error_, info_;
};

}  // namespace sluice::guest
