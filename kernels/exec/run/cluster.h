// SPDX-License-Identifier: Apache-2.0
// ClusterImpl: the blocks of one thread block cluster as one Block. They take turns on the thread
// that is in run(), so barriers of the cluster and accesses to another block's shared memory need
// no atomics, and the cluster is resident, stopped and moved as a whole. Internal to kernels/exec;
// one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "kernels/exec/run/block_impl.h"

namespace sluice::exec::detail {

class ClusterImpl final : public Block {
 public:
  // `blocks`: by rank, more than one, none started.
  ClusterImpl(std::vector<std::unique_ptr<BlockImpl>> blocks, const LaunchShape& launch,
              Environment& world);

  void start(Dim3 first, SmPlace where) override;
  RunResult run(uint64_t max_steps) override;
  const Fault& fault() const override { return blocks_[faulted_]->fault(); }
  void move(SmPlace where) override;
  void move_rank(uint32_t rank, SmPlace where) override;

 private:
  std::vector<std::unique_ptr<BlockImpl>> blocks_;
  Dim3 size_;
  Environment& environment_;
  size_t next_ = 0;     // whose turn it is
  size_t faulted_ = 0;  // whose fault ended the cluster
};

}  // namespace sluice::exec::detail
