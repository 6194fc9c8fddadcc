// SPDX-License-Identifier: Apache-2.0
// What a tenant of gpu-bench runs: a program is made once, and then a unit of its work is queued
// again and again.
//
//   Work      a loop of integers, of any number of blocks and any length; counts its blocks
//   Chain     launches of Work of different sizes, each of which waits for the one before
//   HeldOut   one of the twenty kernels of held_out.cu
//   Recorded  one of the suite's catalogue, all its steps
//
// One thread with a context current. Throws suite::DriverError where a call fails.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/suite/programs/driver.h"

namespace sluice::bench {

struct Verdict {
  std::string wrong;  // empty: what the unit left is right, or has only a hash
  std::uint64_t hash = 0;
  bool comparable = true;  // the hash is the same after each right execution
};

class TenantProgram {
 public:
  virtual ~TenantProgram() = default;
  virtual void queue(CUstream stream) = 0;
  // Blocks [first, first + count) of a unit that is one launch; false: it cannot be cut.
  virtual bool queue_slice(CUstream, std::uint32_t, std::uint32_t) { return false; }
  virtual std::uint32_t blocks() const { return 0; }
  // Stream idle. `whole`: compares with a reference on the CPU where there is one; it may take
  // seconds.
  virtual Verdict verdict(CUstream stream, bool whole) = 0;
};

// What a block of Work wrote down of its newest run: %globaltimer at its begin and its end.
struct BlockStamp {
  std::uint64_t begin = 0, end = 0;
};

// Work with the times of its blocks, for who wants to see when it ran.
class StampedProgram : public TenantProgram {
 public:
  virtual std::vector<BlockStamp> stamps(CUstream stream) = 0;
};

// `words`: "work BLOCKS STEPS", "stamped BLOCKS STEPS", "chain BLOCKS,BLOCKS,.. STEPS",
// "held NAME BLOCKS", "case NAME SCALE". Throws std::runtime_error for others.
std::unique_ptr<TenantProgram> make_program(const std::vector<std::string>& words);

}  // namespace sluice::bench
