// SPDX-License-Identifier: Apache-2.0
// Cubins: the ELF files in which machine code for NVIDIA's GPUs comes. Reads the container and
// checks every place in it that names another; never an instruction. Users: the guest's
// libcuda.so.1, the worker, the software GPU.
//
// Pure; any thread. The bytes are a guest's. Errors have a CUresult as code.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::cubin {

// What to say to a program whose kernels come without PTX where PTX is needed.
inline constexpr std::string_view kBuildWithPtx =
    "build with PTX as well: nvcc -gencode arch=compute_80,code=compute_80, or -arch=sm_90, which "
    "keeps both";

// A section with this name holds the PTX that the machine code was made of. The guest's libcuda
// makes clones of it, the software GPU runs it. No compiler writes one: guest-agent/jit attaches it
// to what a program compiles at run time (attach.h).
inline constexpr std::string_view kPtxSection = ".sluice.ptx";

// Whether bytes that begin with these four are a cubin.
bool is_cubin(uint32_t magic);
bool is_cubin(std::string_view image);

struct Param {
  uint32_t offset = 0, bytes = 0;
};

struct Kernel {
  std::string_view name;
  std::vector<Param> params;         // in their order
  std::array<uint32_t, 3> block{};   // the only one that it runs in (.reqntid); zeros: any
  bool blocks_are_clusters = false;  // launches may leave `block` out
};

// Everything points into the image.
struct Cubin {
  uint32_t sm = 0;  // compute capability: 90 for 9.0
  std::vector<Kernel> kernels;
  // Device memory that its sections take: code, variables, constant banks. Never less than the
  // image.
  uint64_t device_bytes = 0;
  std::string_view ptx;  // of kPtxSection; empty: there is none
  // It has managed variables, or texture or surface references.
  bool managed_or_references = false;
  std::vector<std::string_view> undefined;  // functions that it calls and does not have
};

// Checks all of an image.
Result<Cubin> read(std::string_view image);

// How long the cubin at `image` is by its own headers, for a program that hands over a pointer
// only. Reads the ELF header and the tables that it names, so the caller's own memory only.
Result<uint64_t> bytes_of(const void* image);

}  // namespace sluice::cubin
