// SPDX-License-Identifier: Apache-2.0
// The decoded form that the engine runs: one fixed-size Inst per PTX instruction (a few expand to
// two), operands resolved to byte offsets. Internal to kernels/exec; built by decode, immutable
// afterwards, read by every thread that runs blocks of the program.
//
// Registers: a 32-bit (or 16- or 8-bit) register is a slot of 32 lanes x 4 bytes, a 64-bit one 32
// lanes x 8 bytes; bits above a 16- or 8-bit value are undefined. A predicate is one uint32_t per
// warp, bit = lane. Constants live in a pool in the same lane-wide shape, shared by all warps.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/exec/program/ops.h"
#include "kernels/exec/program/program.h"

namespace sluice::exec::detail {

inline constexpr uint32_t kSlotBytes = 32 * 4;
// Source operand: byte offset in the warp's registers, or with this bit in the constant pool.
inline constexpr uint32_t kConstBit = 0x8000'0000u;
inline constexpr uint32_t kNoOperand = 0xffff'ffffu;
inline constexpr uint32_t kNoTarget = 0xffff'ffffu;

// The first two slots of a warp's registers, where the module has functions: each lane's frame in
// local memory, and the end of what its frames take. Frames begin at multiples of
// Code::frame_align; a kernel's own begins at 0.
inline constexpr uint32_t kFramePointer = 0;
inline constexpr uint32_t kStackPointer = 32 * 8;
inline constexpr uint32_t kFrameRegisterBytes = 2 * 32 * 8;

// Predicates that every warp has.
inline constexpr uint32_t kPredFalse = 0;
inline constexpr uint32_t kPredTrue = 1;
inline constexpr uint32_t kFirstPred = 2;
inline constexpr uint32_t kPredNegate = 0x8000'0000u;  // in a predicate operand or guard

struct Inst {
  uint16_t op = 0;
  uint16_t mod = 0;  // meaning by op, see Mod
  uint32_t guard = kPredTrue;
  uint32_t d = kNoOperand, a = kNoOperand, b = kNoOperand, c = kNoOperand, e = kNoOperand;
  uint32_t aux = 0;  // index in Code::aux
  int64_t imm = 0;   // offset, branch target, special register, ...
};
static_assert(sizeof(Inst) == 40);

// Bits of Inst::mod.
enum Mod : uint16_t {
  kModNone = 0,
  kModRoundMask = 7,  // enum Round
  kModFtz = 1 << 3,
  kModSat = 1 << 4,
  kModNan = 1 << 5,      // min/max.NaN
  kModXorSign = 1 << 6,  // min/max.xorsign.abs
  kModRelu = 1 << 7,
  kModSetCc = 1 << 9,   // add.cc
  kModUseCc = 1 << 10,  // addc
  kModRint = 1 << 11,   // cvt: round to an integer (also float to float)
  // setp: how to combine with predicate c.
  kModCombineMask = 3 << 12,
  kModAnd = 1 << 12,
  kModOr = 2 << 12,
  kModXor = 3 << 12,
  // Memory: the low three bits are the space (kSpace...). Strong (volatile, relaxed, acquire,
  // release): really touches memory once per lane.
  kModStrong = 1 << 3,
  kModAcquire = 1 << 4,
  kModRelease = 1 << 5,
  kModAddress32 = 1 << 6,  // the address register is 32 bits wide
  // Barriers: all threads of the warp must execute it together (bar, barrier.aligned).
  kModAligned = 1 << 0,
};
// Inst::imm of barcluster.
inline constexpr int64_t kClusterArrive = 0, kClusterWait = 1;

enum Space : uint16_t {
  kSpaceGeneric,
  kSpaceGlobal,
  kSpaceShared,
  kSpaceLocal,
  kSpaceParam,
  kSpaceCluster,  // shared memory of any block of the cluster
  kSpaceMask = 7
};
enum Round : uint16_t { kRn = 0, kRz = 1, kRm = 2, kRp = 3, kRna = 4 };

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kSmId,
  kNsmId,
  kGridId,
  kMaskEq,
  kMaskLt,
  kMaskLe,
  kMaskGt,
  kMaskGe,
  kClock,
  kClockHi,
  kClock64,
  kGlobalTimer,
  kGlobalTimerLo,
  kGlobalTimerHi,
  kDynamicSmem,
  kTotalSmem,
  kReservedBegin,  // %reserved_smem_offset_...
  kReservedEnd,
  kReservedCap,
  kReserved0,
  kReserved1,
  kDynamicBase,  // address of the dynamic shared memory; no register of PTX's
  kGridWorkspaceHi,
  kGridWorkspaceLo,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNclusterIdX,
  kNclusterIdY,
  kNclusterIdZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtaRank,
  kClusterNctaRank,
  kExplicitCluster,
};

struct FunctionCode {
  std::string name;
  bool is_entry = false;
  uint32_t begin = 0, end = 0;  // instruction indices in Code::code
};

// What device code calls without a body and the driver provides.
enum class Builtin : uint8_t {
  kVprintf,
  kAssertFail,
  kMalloc,
  kFree,
  // CUDA's device runtime (device_runtime.cc). By the grid's DeviceLaunches:
  kLaunchParameters,
  kLaunch,
  kCopy,
  kFill,
  kCopyRows,
  kFillRows,
  kDeviceAttribute,
  kKernelAttributes,
  kOccupancy,
  kErrorName,
  kErrorText,
  kLimit,
  // Without them:
  kLastError,
  kPeekAtLastError,
  kMakeHandle,  // of a stream or an event
  kNothingToDo,
  kDeviceMalloc,
  kDeviceFree,
  kGetDevice,
  kDeviceCount,
  kRuntimeVersion,
  kCacheConfig,
};
constexpr bool of_device_runtime(Builtin function) {
  return function >= Builtin::kLaunchParameters;
}
constexpr bool needs_launches(Builtin function) {
  return of_device_runtime(function) && function <= Builtin::kLimit;
}

// A piece of a frame: a parameter or a result.
struct Piece {
  uint32_t offset = 0, bytes = 0;
};

// A .func as the engine calls it. Its address is kCodeWindow + 16 * (its index + 1).
struct Callable {
  std::string name;
  bool defined = false;      // has a body
  uint32_t begin = 0;        // first instruction
  uint32_t frame_bytes = 0;  // parameters, results, variables; a multiple of Code::frame_align
  uint32_t signature = 0;    // equal: the same places of parameters and results
  // It may be called while an activation of it has not ended: then its registers and predicates are
  // saved. Offsets of its slots; those of 64 bits have kWideSlot set.
  bool recursive = false;
  std::vector<uint32_t> slots;
  uint32_t first_predicate = 0, end_predicate = 0;
};
inline constexpr uint32_t kWideSlot = 1;

struct ConstPatch {  // constant-pool entry that holds a symbol's address
  uint32_t offset = 0;
  uint32_t symbol = 0;
  int64_t addend = 0;
};

// Where a PTX line comes from (.loc); for the checker.
struct SourceLine {
  uint32_t ptx_line = 0;  // and all up to the next one's
  uint32_t file = 0;      // in Code::source_files
  uint32_t line = 0;
};

struct EntryCode {
  uint32_t begin = 0;
  uint32_t register_bytes = 0;  // of one warp
  uint32_t frame_bytes = 0;     // its own variables: where called functions' frames begin
  bool dynamic_stack = false;   // recursion or alloca: how much stack it takes is not known
};

struct Code {
  std::vector<Inst> code;
  std::vector<uint32_t> lines;      // parallel to code
  std::vector<SourceLine> sources;  // by PTX line; empty without .loc
  std::vector<std::string> source_files;
  std::vector<uint32_t> aux;
  std::vector<uint8_t> constants;  // 64-byte aligned when copied into an Image
  std::vector<ConstPatch> patches;
  std::vector<FunctionCode> functions;
  std::vector<Callable> callables;
  uint32_t frame_align = 16;
  bool has_frames = false;      // kFramePointer and kStackPointer are in use
  uint32_t register_bytes = 0;  // of one warp, all functions
  uint32_t predicates = kFirstPred;
};

struct ProgramData {
  std::vector<EntryInfo> entries;
  std::vector<SymbolInfo> symbols;
  std::unordered_map<std::string, uint32_t> entry_index, symbol_index;
  std::vector<EntryCode> entry_code;      // parallel to entries
  std::vector<std::string> kernel_names;  // what pointers to kernels count
  bool launches_kernels = false;
  Code code;
};

// 64-byte aligned, zero; untouched pages cost nothing. `data` is null when there is no memory: the
// owner reports that to its caller.
struct AlignedBytes {
  explicit AlignedBytes(size_t bytes);
  ~AlignedBytes();
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  uint8_t* data = nullptr;
  size_t bytes = 0;
};

// One remembered range of global memory; a warp's are valid for one version of the map.
struct CachedRange {
  uint64_t base = 0;
  uint64_t bytes = 0;
};

struct ImageData {
  explicit ImageData(size_t constant_bytes) : constants(constant_bytes) {}
  AlignedBytes constants;
  std::vector<CachedRange> const_ranges;  // of .const variables
};

}  // namespace sluice::exec::detail
