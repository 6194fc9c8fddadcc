// SPDX-License-Identifier: Apache-2.0
// nvJitLink: links PTX, machine code and intermediate code to machine code. JitLink remembers what
// a program adds to a link, and gives it the linked machine code with the PTX of all of it:
//
//   inputs                                     PTX of the link
//   one text                                   that
//   several texts, or machine code and fat     joined (kernels/ptx/images/link.h)
//   binaries that carry their PTX
//   intermediate code among them (-lto)        a second link of the same inputs, with -ptx
//   anything else: objects, libraries          none
//
// One for each nvJitLink that is loaded and each version of its names (`_13_0`). Any thread; a link
// is one thread's at a time, as nvJitLink has it. Never throws. Results are nvJitLink's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "guest-agent/jit/compiler_library.h"

namespace sluice::jit {

class JitLink {
 public:
  static constexpr int kInternalError = 6;
  JitLink(const CompilerLibrary& library, std::string_view version);

  int create(void** handle, uint32_t count, const char** options);
  int add_data(void* handle, int type, const void* data, size_t bytes, const char* name);
  int add_file(void* handle, int type, const char* path);
  int complete(void* handle);
  int cubin_size(void* handle, size_t* bytes);
  int cubin(void* handle, void* to);
  int destroy(void** handle);

 private:
  struct Input {
    int type;
    std::string bytes, name;
  };
  struct Link {
    std::vector<std::string> options;
    std::vector<Input> inputs;
    size_t kept = 0;        // bytes of all inputs
    bool whole = true;      // all inputs are kept
    bool complete = false;  // successfully
    bool attached = false;  // `carried` has been made
    std::string carried;
  };
  void keep(void* handle, int type, std::string_view bytes, const char* name);
  std::string attach(void* handle, const Link& link, size_t bytes) const;
  std::string ptx_of(const Link& link) const;
  std::string linked_again_as_ptx(const Link& link) const;

  int (*create_)(void**, uint32_t, const char**) = nullptr;
  int (*add_data_)(void*, int, const void*, size_t, const char*) = nullptr;
  int (*add_file_)(void*, int, const char*) = nullptr;
  int (*complete_)(void*) = nullptr;
  int (*cubin_size_)(void*, size_t*) = nullptr;
  int (*cubin_)(void*, void*) = nullptr;
  int (*ptx_size_)(void*, size_t*) = nullptr;
  int (*ptx_)(void*, char*) = nullptr;
  int (*destroy_)(void**) = nullptr;

  std::mutex mutex_;  // of `links_`
  std::unordered_map<void*, Link> links_;
};

}  // namespace sluice::jit
