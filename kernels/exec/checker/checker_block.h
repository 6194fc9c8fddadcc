// SPDX-License-Identifier: Apache-2.0
// BlockChecker: what the checker knows of one block: shadow of its shared and local memory, which
// accesses of its threads come before which, who waits at its barriers. Internal to kernels/exec;
// owned by BlockImpl, the thread in Block::run.
//
// Order. Every checked instruction has a time. A thread's access came before another's if a barrier
// or a warp-wide instruction in which both took part lies between them, or a strong read of what
// the first one released (a release, or a fence and then a strong write). Kept as times: "thread A
// knows all that warp W did up to t". Approximations, all on the side of silence:
// docs/operating/checker.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/checker/checker.h"
#include "kernels/exec/checker/checker_values.h"
#include "kernels/exec/program/inst.h"

namespace sluice::exec::detail {

// What an operation does to memory, by its name (checker_table.cc).
struct MemoryOp {
  enum Kind : uint8_t {
    kNone,
    kLoad,
    kStore,
    kAtomic,
    kExchange,  // compare and swap
    kCopyAsync,
    kFence,
    kLanes,     // by way of resolve_lane_access: matrices
    kMbarrier,  // likewise: orders whoever arrives and whoever waits
    kBulk,      // likewise: a copy, and the mbarrier that it completes
  };
  Kind kind = kNone;
  uint8_t bytes = 0;  // of one element
  uint8_t count = 1;  // elements
};
const MemoryOp& memory_op(uint16_t op);

class BlockChecker {
 public:
  BlockChecker(Checker& checker, const BlockState& block, const Code& code, std::string kernel,
               const void* program, uint32_t register_bytes);

  // The table for blocks of this checker: its handlers come to execute().
  const Handler* handlers() const;
  void start();  // a new block begins; BlockState::ctaid is set
  // The block has ended: what is still open at its barriers?
  void finish();
  // A handler of the checked table: executes and records.
  Flow execute(Warp& warp, const Inst& inst, Handler handler);
  // One lane's access in an instruction that execute() has under way (resolve_lane_access).
  void lane_access(Warp& warp, uint32_t space, uint64_t address, uint32_t bytes, bool write,
                   uint32_t lane);

  // These lanes have met in a warp-wide instruction.
  void warp_met(const Warp& warp, uint32_t lanes);
  void barrier_arrived(const Warp& warp, const Inst& inst, uint32_t lanes, uint32_t number,
                       uint32_t threads);
  // The barrier has what it needs; before anybody goes on.
  void barrier_complete(uint32_t number);
  // The cluster's barrier: all that any of its blocks did came before all that they will do.
  // Accesses between an arrival and its wait count as before it: silence.
  void cluster_met();
  // Lanes that waited at `at` for the rest of their warp go on without it, because the rest is at a
  // barrier.
  void barrier_passed_by(const Warp& warp, uint32_t lanes, const Inst& at);

  // A call: the bytes of a new frame have never been written, its arguments are copies.
  void new_frame(const Warp& warp, uint32_t lane, uint64_t base, uint64_t bytes);
  void copy_local(const Warp& warp, uint32_t lane, uint64_t to, uint64_t from, uint64_t bytes);

  // Adds to a fault: who freed the memory, which threads wait where.
  void explain(Fault& fault) const;
  // With CheckOptions::error: a finding that should end the block. `fault` is then filled.
  bool failed(Fault& fault) const;

 private:
  struct Access {
    uint8_t lane = 0;
    uint8_t space = 0;  // kSpaceGlobal, Shared or Local
    bool read = false, write = false;
    bool strong = false;
    bool silent = false;        // writes what is there already
    bool undefined = false;     // writes a value that is made of unwritten memory
    uint8_t element = 0;        // of a vector
    bool synchronises = false;  // of an mbarrier: releases and acquires, and nobody's data
    uint32_t bytes = 0;
    uint64_t address = 0;  // space-relative
  };
  struct Watch {  // of one barrier
    bool open = false;
    uint32_t threads = 0;
    const Inst* first = nullptr;
    uint32_t first_thread = 0;
    struct Arrival {
      uint32_t lanes = 0, live = 0, time = 0;
      const Inst* at = nullptr;
      bool waits = false;
    };
    std::array<Arrival, kMaxBlockThreads / kWarpLanes> warps;
  };
  using Times = std::array<uint32_t, kWarpLanes>;

  uint32_t line_of(const Inst& inst) const;
  bool guess_of_exchange(const Inst& inst);
  void collect(Warp& warp, const Inst& inst, const MemoryOp& op);
  // False: not followed. Of other blocks' shared memory only writes and the order by strong
  // accesses are recorded: races there are not detected.
  bool add_access(Warp& warp, uint32_t lane, uint32_t space, uint64_t address, uint32_t bytes,
                  bool write, bool read, bool strong);
  bool is_silent(const Warp& warp, const Inst& inst, const MemoryOp& op, const Access& access,
                 uint32_t element) const;
  const uint8_t* host_address(const Warp& warp, const Access& access) const;
  void record(Warp& warp, const Inst& inst);
  void record_one(const Warp& warp, const Access& access, uint32_t line);
  bool never_written(const Warp& warp, const Access& access) const;
  void set_written(const Warp& warp, const Access& access, bool written);
  void follow_load(Warp& warp, const Inst& inst, const MemoryOp& op);
  void follow_store(Warp& warp, const Inst& inst, const MemoryOp& op);
  // Undefined values that decide something: `how` says what.
  void used(const Warp& warp, const Inst& inst, uint32_t lanes, const ValueShadow::Origin& origin,
            const char* how);
  void touch(ShadowCell& cell, const Warp& warp, const Access& access, uint32_t line, uint8_t mask);
  bool comes_before(const AccessRecord& earlier, bool wrote, const Warp& warp, uint32_t lane) const;
  void race(const AccessRecord& earlier, bool earlier_wrote, const Warp& warp, const Access& access,
            uint32_t line);
  void race_of_writes(const AccessRecord& first, const AccessRecord& second, const Access& access);
  void learn(uint32_t thread, const KnownTimes& known);
  void publish(KnownTimes& known, const Warp& warp, bool released);

  CheckParty party(const Inst& inst, uint32_t thread, std::string what) const;
  CheckParty party(uint32_t line, uint32_t thread, std::string what) const;
  Dim3 thread_of(uint32_t number) const;
  Dim3 block_of(uint32_t linear) const;
  void report(Finding finding);
  void report_barrier(CheckParty who, const CheckParty* other, std::string detail);
  std::string source_of(uint32_t line) const;

  Checker& checker_;
  const BlockState& block_;
  const Code& code_;
  const std::string kernel_;
  std::shared_ptr<LaunchShadow> launch_;
  uint32_t linear_ = 0;            // this block
  uint32_t now_ = 0;               // time of the instruction under way
  const uint32_t register_bytes_;  // of one warp
  ValueShadow values_;
  const Inst* current_ = nullptr;  // that tells its accesses one by one
  std::vector<Access> accesses_;

  std::vector<ShadowCell> shared_cells_;  // one per byte
  std::vector<bool> shared_written_, local_written_;
  // known_lanes_[w][a][b]: what lane a of warp w knows of lane b; known_warps_[w][v] likewise.
  std::vector<std::array<Times, kWarpLanes>> known_lanes_;
  std::vector<Times> known_warps_;
  std::vector<uint32_t> known_here_;  // by thread: of the whole block, by way of memory
  KnownTimes known_blocks_;           // of other blocks
  Times fenced_{};                    // by warp: its last fence
  std::unordered_map<uint64_t, KnownTimes> shared_published_;
  std::array<Watch, 16> barriers_;
  std::unordered_map<const Inst*, bool> guesses_;
  bool failed_ = false;
  Fault failure_;
};

}  // namespace sluice::exec::detail
