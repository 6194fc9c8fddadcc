// SPDX-License-Identifier: Apache-2.0
// The conformance set's second half: whole small kernels for what takes more than one thread or one
// instruction (matrix instructions, barriers, asynchronous copies, textures, collectives). They run
// through the CUDA driver API, the same code on a real GPU (record_gpu) and on the software GPU
// (programs_test.cc). Lists are pure; the runner uses the calling thread's current context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "abi/cuda_texture.h"
#include "mediator/gpu/driver_api.h"

namespace sluice::conformance {

// A texture or surface that the runner makes and passes as third parameter. Contents: random by the
// program's name.
struct TextureSpec {
  enum class Resource : std::uint8_t { kArray, kLinear, kPitch2d };
  Resource resource = Resource::kArray;
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  unsigned channels = 4;
  unsigned width = 16, height = 0, depth = 0;  // texels; depth: layers, if layered
  bool layered = false, surface = false, gather = false;
  CUaddress_mode address = CU_TR_ADDRESS_MODE_CLAMP;
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT;
  unsigned flags = 0;  // CU_TRSF_...
  float border[4] = {};
  bool read_back = false;  // a surface's contents follow the output
};

enum class Values : std::uint8_t { kBits, kF32 };

struct Program {
  std::string name;  // also the kernel's
  // The entry NAME(.param .u64 out, .param .u64 in[, .param .u64 tex]) and what it needs before it.
  std::string text;
  unsigned blocks = 1, threads = 32;
  std::vector<std::uint8_t> input;
  std::size_t output_bytes = 0;
  std::optional<TextureSpec> texture;
  // Bit for bit, or f32 that may differ by so much.
  Values values = Values::kBits;
  double absolute = 0;
};

// `scale`: how many times the usual number of random matrices; the first ones are the same.
std::vector<Program> all_programs(unsigned scale);
// The families; each appends its programs.
void tensor_programs(std::vector<Program>& all, unsigned scale);
void async_programs(std::vector<Program>& all);
void block_programs(std::vector<Program>& all);
void texture_programs(std::vector<Program>& all);
// Appends a program of one kernel: `body` stands between its braces, after its registers (%p, %h,
// %r, %rd, %f). Each thread has so many 32-bit words of input, random by the name, and of output.
void add_program(std::vector<Program>& all, const std::string& name, unsigned blocks,
                 unsigned threads, unsigned in_words, unsigned out_words, const std::string& body);

std::string programs_text(const std::vector<Program>& programs);

struct ProgramResult {
  std::string name;
  std::vector<std::uint8_t> output;
};
// Runs all with the current context's device; false: `error` says which call of which program.
bool run_programs(const gpu::DriverApi& cuda, const std::vector<Program>& programs,
                  std::vector<ProgramResult>& results, std::string& error);

// Little-endian: per program the name's length, the name, the output's length, the output.
bool write_results(const std::string& path, const std::vector<ProgramResult>& results);
std::vector<ProgramResult> read_results(const std::string& path);

}  // namespace sluice::conformance
