// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's original and its clone on the interpreter, the clone evicted at random: the
// worker (mediator/worker) in small, without driver and without time.
//
// Owner: sluice-ptx check, and the tests of the rewriter; one thread. Blocks take turns at random
// lengths on the calling thread, so that everything that a seed decides happens again with it.
// It gives memory and launches; what the results mean is the caller's business.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "abi/preempt.h"
#include "kernels/exec/block/block.h"
#include "kernels/passes/rewrite.h"
#include "mediator/base/result.h"

namespace sluice::tool {

struct KernelLaunch {
  std::string kernel;
  exec::Dim3 grid, block;
  std::uint32_t dynamic_shared = 0;
  std::vector<std::byte> params;  // the original's whole parameter block
};

// How the clone is launched and disturbed; everything that is not said here follows from the seed:
// workers, chunk, batch, signal, whether evictions are of all SMs or some, and when they come.
struct EvictionOptions {
  std::uint64_t seed = 1;
  std::uint32_t most_evictions = 8;  // a number up to this, by the seed
  // Warp instructions that the original took: evictions are spread over about as many.
  std::uint64_t expected_steps = 2000;
  std::uint64_t step_limit = 400'000'000;  // warp instructions, all physical launches together
};

struct EvictionStats {
  std::uint32_t physical = 0;   // launches that it took
  std::uint32_t evictions = 0;  // of them, those that ended before their work did
  std::uint64_t steps = 0;      // warp instructions
  std::string setting;          // for messages: "3 workers, chunk 8, proxy"
};

class EvictionRun {
 public:
  // Rewrites the module and decodes the result, which holds the originals as well. Errors: the text
  // cannot be cut into statements, or has something that the interpreter does not know.
  static Result<std::unique_ptr<EvictionRun>> load(const std::string& ptx);
  ~EvictionRun();

  const passes::Rewritten& rewritten() const { return rewritten_; }
  const passes::KernelReport* report(std::string_view kernel) const;
  const exec::Program& program() const { return image_->program(); }

  // Device memory, 256-byte aligned and zero. Returns its number.
  std::size_t add_buffer(std::size_t bytes);
  std::uint64_t address(std::size_t buffer) const { return buffers_[buffer].address; }
  std::byte* data(std::size_t buffer) { return reinterpret_cast<std::byte*>(address(buffer)); }
  std::size_t bytes(std::size_t buffer) const { return buffers_[buffer].bytes; }
  // The variable's memory; null: there is none of this name.
  std::byte* symbol(std::string_view name);

  // Everything that kernels can write: buffers, then the module's variables.
  std::vector<std::vector<std::byte>> contents() const;
  void restore(const std::vector<std::vector<std::byte>>& contents);

  // The original, blocks in order, a few of them at a time. An error names the fault.
  Result<EvictionStats> run_original(const KernelLaunch& launch, std::uint64_t seed);
  // The clone, until every task has run; an error also where the control block does not add up.
  Result<EvictionStats> run_clone(const KernelLaunch& launch, const EvictionOptions& options);

 private:
  struct Memory {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> owned;
  };
  class World;
  class Evicted;
  EvictionRun();
  Memory allocate(std::size_t bytes);

  passes::Rewritten rewritten_;
  std::shared_ptr<const exec::Image> image_;
  std::vector<Memory> buffers_, symbols_;
  exec::MemoryMap map_;
  std::unique_ptr<World> world_;
};

// Where two contents differ first, for people; empty: nowhere.
std::string first_difference(const std::vector<std::vector<std::byte>>& a,
                             const std::vector<std::vector<std::byte>>& b);

}  // namespace sluice::tool
