// SPDX-License-Identifier: Apache-2.0
// Random PTX kernels with a known answer: a generator, and a plain scalar evaluator of what it
// made.
//
// For tests that compare two ways to execute the same kernel: the interpreter against the evaluator
// (exec_random_kernel_test), a rewritten kernel against its original. Pure and deterministic: the
// same options give the same kernel on every machine; any thread.
//
// What is in them: integer, 64-bit, 16-bit, f16, f32 and f64 arithmetic, predicates and guards,
// nested and divergent ifs, loops (with break and continue) and switches, early exits, also in
// loops with barriers and in functions, device functions called directly and through pointers,
// local memory, shared memory with barriers where the whole block comes (some only if a predicate
// of the block says so) or a group of its warps, arrivals, barrier reductions, shuffles, votes,
// matches and reductions of a warp with the mask of the lanes that come (exactly, or with lanes
// that have exited), and atomics whose result does not depend on their order. What is not: data
// races, order-dependent results, approximate instructions, undefined values. So the result is one,
// bit for bit, on whatever executes PTX correctly, whatever order blocks run in.
//
// The entry is named "k" and has the parameters
//   .u64 input, .u64 output, .u64 accumulators, .u32 scalar, and some an array of .b32 behind them
// (layout: RandomKernel::params).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice::random_kernels {

struct RandomKernelOptions {
  uint64_t seed = 1;
  // Size: about so many statements of the generator (a statement is one to thirty instructions).
  uint32_t statements = 40;
  // Shape; 0: chosen by the seed (blocks of up to 256 threads, warps not always whole, up to three
  // dimensions; up to 8 tasks).
  uint32_t grid[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
  // What may occur.
  bool floats = true;      // f16, f32, f64
  bool divergence = true;  // control flow that depends on the thread
  bool early_exit = true;
  bool barriers = true;  // and with them exchange through shared memory
  bool collectives = true;
  bool atomics = true;
  bool calls = true;
  bool local_memory = true;
  // Only this arithmetic operation (0 .. operation_count() - 1), in straight lines; -1: all.
  int32_t only_operation = -1;
};

// The arithmetic operations that there are, and what they look like ("add.u32").
uint32_t operation_count();
const char* operation_text(uint32_t operation);

class RandomProgram;  // the generator's own form; opaque

struct RandomKernel {
  static constexpr const char* kEntry = "k";
  std::string ptx;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  // Contents of the three buffers before the launch. output and accumulators are compared after it.
  std::vector<uint8_t> input, output, accumulators;
  uint32_t scalar = 0;
  std::vector<uint8_t> big;  // the last parameter; empty: there is none
  std::shared_ptr<const RandomProgram> program;

  uint32_t threads_per_block() const { return block[0] * block[1] * block[2]; }
  uint32_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  // The parameter buffer (28 bytes and `big`) for buffers at these device addresses, each 256-byte
  // aligned.
  std::vector<std::byte> params(uint64_t input_address, uint64_t output_address,
                                uint64_t accumulators_address) const;
};

RandomKernel make_random_kernel(const RandomKernelOptions& options);

struct RandomKernelResult {
  std::vector<uint8_t> output, accumulators;
};

// What the kernel leaves behind. One thread at a time, one instruction at a time: no vectors, no
// masks, nothing shared with kernels/exec.
RandomKernelResult evaluate(const RandomKernel& kernel);

// Where two results differ first, for a person; empty: nowhere. Names buffer, block, thread, word.
std::string describe_difference(const RandomKernel& kernel, const RandomKernelResult& expected,
                                const RandomKernelResult& got);

}  // namespace sluice::random_kernels
