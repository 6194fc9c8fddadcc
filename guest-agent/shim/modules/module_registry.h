// SPDX-License-Identifier: Apache-2.0
// The process's modules, libraries and kernels, and how they get to the worker. For modules.cc and
// libraries.cc only; others ask modules.h. Everything here wants all_modules().mutex held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "guest-agent/shim/modules/managed_variables.h"
#include "guest-agent/shim/modules/module_text.h"
#include "guest-agent/shim/modules/texture_references.h"
#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

struct Module {
  struct Global {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
  };
  uint64_t context = 0;
  std::unordered_map<std::string, KernelFlags> kernels;   // empty if the original was loaded
  std::shared_ptr<const ptx::SeparableModule> separable;  // of Text
  bool at_once = false;                                   // of Text
  std::unordered_map<std::string, uint64_t> functions;
  std::vector<std::string> entries;  // names of all its kernels
  RequiredBlocks required_blocks;
  uint64_t library = 0;  // handle of the library it belongs to, 0: none
  // Those that were asked for. Where they are does not change; they are in the pointer map, too.
  std::unordered_map<std::string, Global> globals;
  std::vector<ReferenceName> references;      // texture_references.h
  std::shared_ptr<ManagedVariables> managed;  // with a library, all its modules have the same
};

struct Library {
  std::shared_ptr<const Text> text;
  std::shared_ptr<ManagedVariables> managed;
  std::unordered_map<uint64_t, uint64_t> modules;  // context -> module
  std::unordered_map<std::string, uint64_t> kernels;
};

struct Kernel {
  uint64_t library = 0;
  std::string name;
};

struct Modules {
  std::mutex mutex;  // held over calls to the worker: loading and looking up are rare
  std::unordered_map<uint64_t, Module> modules;
  std::unordered_map<uint64_t, Library> libraries;
  std::unordered_map<uint64_t, Kernel> kernels;
  uint32_t next_own = 1;  // indices of our own handles (libraries and kernels)
};
Modules& all_modules();

// The code in a program's image (`bytes`: of a file's; 0: unknown) for the current device. Does not
// want the mutex.
CUresult find_code(const Entered& entered, const void* image, size_t bytes, const JitLogs& logs,
                   ModuleCode* code);

// Sends a module's text or machine code; `log` gets the worker's words on failure.
CUresult send_text(WorkerLink& link, uint64_t context, const std::string& text, uint64_t* handle,
                   std::string* log);
// Loads the machine code or the rewritten text, or else the original, in the current context.
// `managed`: the library's variables, null for a module of its own.
CUresult load_module(const Entered& entered, const Text& text, uint64_t library,
                     std::shared_ptr<ManagedVariables> managed, const JitLogs* logs,
                     uint64_t* handle);
// Forgets a module that the worker has unloaded.
void forget_module(uint64_t handle);
CUresult find_function(const Entered& entered, uint64_t module, const std::string& name,
                       uint64_t* handle);
// Handles of as many of `names` as fit into `handles`; `find` gets each.
template <class Handle, class Find>
CUresult enumerate(const std::vector<std::string>& names, Handle* handles, unsigned count,
                   Find&& find) {
  if (handles == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < std::min<size_t>(count, names.size()); ++i)
    if (const CUresult r = find(names[i], &handles[i]); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}
CUresult find_global(const Entered& entered, uint64_t module, const char* name, CUdeviceptr* dptr,
                     size_t* bytes);

// The library's module in the current context, loaded when first needed.
CUresult module_of_library(const Entered& entered, uint64_t library, uint64_t* module);
CUresult function_of_kernel(const Entered& entered, uint64_t kernel, uint64_t* function);

}  // namespace sluice::guest
