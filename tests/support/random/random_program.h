// SPDX-License-Identifier: Apache-2.0
// The generator's own form of a random kernel: a list of simple instructions on typed registers.
// Internal to tests/support/random/: tests see random_kernel.h. Plain values; any thread.
//
// An arithmetic instruction is a row of the table in random_ops.cc: its PTX and a C++ function of
// the operands' bits, so that what is printed and what is evaluated stand side by side.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::random_kernels {

// Register classes: r b32, q b64, h b16, f f32, d f64, p predicate.
inline constexpr const char* kClasses = "rqhfdp";
inline constexpr uint32_t kClassCount = 6;
inline constexpr uint32_t kRegistersPerClass = 128;
uint32_t class_index(char c);

struct Operand {
  char cls = 0;  // 0: none
  bool immediate = false;
  uint16_t reg = 0;
  uint64_t value = 0;  // of an immediate

  static Operand of(char cls, uint32_t reg) { return {cls, false, static_cast<uint16_t>(reg), 0}; }
  static Operand imm(char cls, uint64_t value) { return {cls, true, 0, value}; }
};

struct OpRow {
  // "add.u32", or with $0 (result), $1, $2, $3: more than one instruction, or odd syntax.
  const char* ptx;
  const char* signature;  // classes: result, then operands
  uint64_t (*evaluate)(uint64_t a, uint64_t b, uint64_t c);
  bool is_float = false;
};
std::span<const OpRow> op_rows();

enum class Code : uint8_t {
  kOp,       // sub: row
  kSpecial,  // d = special register, sub: index of kSpecials
  kParam,    // d = parameter, sub: 0 input, 1 output, 2 accumulators, 3 scalar, 4 big at imm
  kAddress,  // d = address of: sub 0 shared (b32), 1 local (b64), 2 shared generic, 3 local generic
  kFunctionAddress,  // d = address of function `sub`
  kLabel,            // sub: number
  kBranch,           // to label `sub`
  kSwitch,           // by a, to labels
  kBarrier,          // sub: 0 bar.sync 0; with number b for c threads: 1 barrier.sync, 2 arrive
  kBarrierReduce,    // sub: 0 popc (d: r), 1 and, 2 or (d: p); a: predicate
  kVote,             // sub: 0 all, 1 any, 2 uni (d: p), 3 ballot (d: r); a: predicate; mask
  kShuffle,          // sub: 0 up, 1 down, 2 bfly, 3 idx; d, d2 (p), a value, b lane, c; mask
  kMatch,            // sub: 0 any, 1 all (d2: p); a; mask
  kReduce,           // sub: index of kReduceNames; a; mask
  kWarpSync,         // mask
  kLoad,             // d.. = [a + imm]
  kStore,            // [a + imm] = b..
  kAtomic,           // sub: index of kAtomics; [a + imm], b; `returns`: atom, otherwise red
  kCall,             // d = function `sub` (or at address c) of a, b
  kExit,             // sub: 0 ret or exit, 1 exit
};

enum class MemorySpace : uint8_t { kGlobal, kShared, kLocal, kGeneric };

struct Ins {
  Code code = Code::kOp;
  uint16_t sub = 0;
  Operand d, d2, a, b, c, mask;
  Operand guard;  // cls 0: none
  bool guard_not = false;
  int64_t imm = 0;
  MemorySpace space = MemorySpace::kGlobal;
  uint8_t bytes = 4;       // of one element
  bool is_signed = false;  // sign-extending load
  bool returns = false;
  bool read_only = false;       // ld.global.nc
  std::vector<Operand> vector;  // loaded or stored elements where more than one
  std::vector<uint16_t> labels;
};

struct AtomicRow {
  const char* ptx;  // "add.u32"
  char cls;
  uint8_t bytes;
  uint64_t (*combine)(uint64_t memory, uint64_t value);
};
std::span<const AtomicRow> atomic_rows();

inline constexpr const char* kSpecials[] = {
    "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};
inline constexpr const char* kReduceNames[] = {"add.u32", "min.u32", "max.u32", "min.s32",
                                               "max.s32", "and.b32", "or.b32",  "xor.b32"};

struct RandomFunction {
  std::vector<Ins> code;
  // Operands are r0 and r1, the result is r2.
};

class RandomProgram {
 public:
  std::vector<Ins> code;
  std::vector<RandomFunction> functions;
  uint32_t shared_bytes = 0;
  uint32_t local_bytes = 0;
  bool dynamic_shared = false;
  uint32_t big_parameter = 0;  // bytes
};

// The whole module.
std::string print_program(const RandomProgram& program);

// Layout of what threads write.
inline constexpr uint32_t kUserRegisters[kClassCount] = {12, 6, 6, 6, 4, 6};
inline constexpr uint32_t kRecordBytes = 256;  // of one thread in the output
inline constexpr uint32_t kInputBytes = 4096;
inline constexpr uint32_t kAccumulatorBytes =
    128;  // global ones; then those of each block's shared
inline constexpr uint32_t kSlotBytesOfThread = 16;  // in shared memory
inline constexpr uint32_t kLocalArrayBytes = 64;

}  // namespace sluice::random_kernels
