// SPDX-License-Identifier: Apache-2.0
// ChildGrids: the kernels that a grid's kernel launches, and its copies and fills. They run when
// all blocks of the grid have ended, one after the other in the order of their launches, each with
// its own children; those of cudaStreamTailLaunch come last. The grid is over when they are. That
// is an order CUDA allows, for any streams that the kernel names: a kernel may not wait for its
// children.
//
// One per grid whose program launches kernels, made by the API, then the runner's. Any thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/exec/block/device_launches.h"
#include "mediator/softgpu/grid/grid_runner.h"

namespace sluice::softgpu {

// Of one grid: some 200 bytes and the parameters each.
inline constexpr size_t kMostWaitingChildren = 1 << 16;

class ChildGrids : public exec::DeviceLaunches, public std::enable_shared_from_this<ChildGrids> {
 public:
  // A child that is ready to be submitted but for its parameters and on_done. Null: there cannot be
  // such a one, and `error` is why (cudaError_t).
  using Make = std::function<std::shared_ptr<Grid>(
      const exec::EntryInfo& entry, const exec::LaunchShape& shape, uint32_t& error)>;
  // What the grid's program and GPU say of themselves, as DeviceLaunches has it.
  struct Answers {
    std::function<std::optional<int>(int which)> device;
    std::function<std::optional<int>(const exec::EntryInfo& entry, int which)> kernel;
    std::function<std::optional<uint32_t>(const exec::EntryInfo& entry, uint32_t block_threads,
                                          uint64_t shared_bytes)>
        blocks_per_sm;
    std::function<std::optional<uint64_t>(int which)> limit;
  };
  ChildGrids(GridRunner& runner, std::shared_ptr<const exec::Image> image, exec::MemoryMap& map,
             exec::DeviceHeap& heap, Make make, Answers answers)
      : runner_(runner),
        image_(std::move(image)),
        map_(map),
        heap_(heap),
        make_(std::move(make)),
        answers_(std::move(answers)) {}

  uint64_t parameters(uint64_t kernel, exec::Dim3 grid, exec::Dim3 block,
                      uint32_t shared_bytes) override;
  uint32_t launch(uint64_t parameters, uint64_t stream) override;
  uint32_t copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t stream) override;
  uint32_t fill(uint64_t to, uint8_t value, uint64_t bytes, uint64_t stream) override;
  std::optional<int> device_attribute(int which) const override;
  std::optional<int> kernel_attribute(uint64_t kernel, int which) const override;
  std::optional<uint32_t> blocks_per_sm(uint64_t kernel, uint32_t block_threads,
                                        uint64_t shared_bytes) const override;
  std::optional<uint64_t> limit(int which) const override;
  void show(std::string_view text) override;
  uint32_t error(bool take) override;

  // The grid's own blocks have ended with `fault`. Runs the children, unless it is one; then calls
  // `done` with the first fault of all.
  void run_after(const exec::Fault& fault, const Grid::Done& done);

 private:
  // What has been launched, without what it takes to run.
  struct Child {
    const exec::EntryInfo* entry = nullptr;  // null: a copy, or with from 0 a fill
    exec::LaunchShape shape;
    std::vector<std::byte> params;
    uint64_t to = 0, from = 0, bytes = 0;
    uint8_t value = 0;
  };

  uint32_t fail(uint32_t error);
  uint32_t add(Child child, uint64_t stream);
  bool transfer(const Child& child) const;
  void run_next();
  void end(const exec::Fault& fault);

  GridRunner& runner_;
  std::shared_ptr<const exec::Image> image_;
  exec::MemoryMap& map_;
  exec::DeviceHeap& heap_;
  Make make_;
  Answers answers_;
  Grid::Done done_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Child> prepared_;  // by the address of the parameters
  std::deque<Child> launched_, tail_;
  uint32_t error_ = 0;
};

}  // namespace sluice::softgpu
