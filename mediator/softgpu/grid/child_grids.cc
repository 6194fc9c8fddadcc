// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/grid/child_grids.h"

#include <algorithm>
#include <cstring>

#include "kernels/exec/memory/device_heap.h"

namespace sluice::softgpu {
namespace {

// cudaError_t
constexpr uint32_t kInvalidValue = 1, kMemoryAllocation = 2, kPendingCountExceeded = 69,
                   kInvalidDeviceFunction = 98;
constexpr uint64_t kTailLaunch = 3;  // cudaStreamTailLaunch

}  // namespace

uint32_t ChildGrids::fail(uint32_t error) {
  std::lock_guard lock(mutex_);
  error_ = error;
  return error;
}

uint32_t ChildGrids::error(bool take) {
  std::lock_guard lock(mutex_);
  const uint32_t error = error_;
  if (take) error_ = 0;
  return error;
}

uint64_t ChildGrids::parameters(uint64_t kernel, exec::Dim3 grid, exec::Dim3 block,
                                uint32_t shared_bytes) {
  const exec::EntryInfo* entry = image_->program().kernel_at(kernel);
  exec::LaunchShape shape{grid, block, shared_bytes};
  uint32_t error = kInvalidDeviceFunction;
  if (entry == nullptr || make_(*entry, shape, error) == nullptr) return fail(error), 0;
  const uint64_t at = heap_.allocate(std::max(entry->param_bytes, 1u));
  if (at == 0) return fail(kMemoryAllocation), 0;
  std::lock_guard lock(mutex_);
  prepared_[at] = {entry, shape, {}, 0, 0, 0, 0};
  return at;
}

uint32_t ChildGrids::launch(uint64_t parameters, uint64_t stream) {
  std::unique_lock lock(mutex_);
  const auto prepared = prepared_.find(parameters);
  if (prepared == prepared_.end()) return error_ = kInvalidValue;
  Child child = std::move(prepared->second);
  prepared_.erase(prepared);
  const auto* bytes = reinterpret_cast<const std::byte*>(parameters);
  child.params.assign(bytes, bytes + child.entry->param_bytes);
  lock.unlock();
  heap_.free(parameters);
  return add(std::move(child), stream);
}

uint32_t ChildGrids::copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t stream) {
  if (bytes == 0) return 0;
  if (to == 0 || from == 0) return fail(kInvalidValue);
  return add({nullptr, {}, {}, to, from, bytes, 0}, stream);
}
uint32_t ChildGrids::fill(uint64_t to, uint8_t value, uint64_t bytes, uint64_t stream) {
  if (bytes == 0) return 0;
  if (to == 0) return fail(kInvalidValue);
  return add({nullptr, {}, {}, to, 0, bytes, value}, stream);
}

std::optional<int> ChildGrids::device_attribute(int which) const { return answers_.device(which); }
std::optional<int> ChildGrids::kernel_attribute(uint64_t kernel, int which) const {
  const exec::EntryInfo* entry = image_->program().kernel_at(kernel);
  return entry == nullptr ? std::nullopt : answers_.kernel(*entry, which);
}
std::optional<uint32_t> ChildGrids::blocks_per_sm(uint64_t kernel, uint32_t block_threads,
                                                  uint64_t shared_bytes) const {
  const exec::EntryInfo* entry = image_->program().kernel_at(kernel);
  return entry == nullptr ? std::nullopt
                          : answers_.blocks_per_sm(*entry, block_threads, shared_bytes);
}

std::optional<uint64_t> ChildGrids::limit(int which) const { return answers_.limit(which); }

void ChildGrids::show(std::string_view text) {
  const auto at = reinterpret_cast<uint64_t>(text.data());
  // Several at once: the second one's add() finds it there, too.
  if (map_.find(at, text.size()).bytes == 0) (void)map_.add(at, text.size(), false);
}

uint32_t ChildGrids::add(Child child, uint64_t stream) {
  std::lock_guard lock(mutex_);
  if (launched_.size() + tail_.size() == kMostWaitingChildren)
    return error_ = kPendingCountExceeded;
  (stream == kTailLaunch ? tail_ : launched_).push_back(std::move(child));
  return 0;
}

// False: its memory is not there.
bool ChildGrids::transfer(const Child& child) const {
  const exec::MemoryRange to = map_.find(child.to, child.bytes);
  if (to.bytes == 0 || !to.writable) return false;
  auto* bytes = reinterpret_cast<std::byte*>(child.to);
  if (child.from == 0) {
    std::memset(bytes, child.value, child.bytes);
    return true;
  }
  if (map_.find(child.from, child.bytes).bytes == 0) return false;
  std::memmove(bytes, reinterpret_cast<const std::byte*>(child.from), child.bytes);
  return true;
}

void ChildGrids::run_after(const exec::Fault& fault, const Grid::Done& done) {
  done_ = done;
  // What was prepared and not launched.
  for (const auto& [at, child] : prepared_) heap_.free(at);
  prepared_.clear();
  if (fault.kind != exec::FaultKind::kNone)
    end(fault);
  else
    run_next();
}

void ChildGrids::run_next() {
  Child child;
  do {
    std::deque<Child>& from = launched_.empty() ? tail_ : launched_;
    if (from.empty()) return end({});
    child = std::move(from.front());
    from.pop_front();
    if (child.entry != nullptr || transfer(child)) continue;
    exec::Fault fault;
    fault.kind = exec::FaultKind::kOutOfBounds;
    fault.address = child.to;
    fault.bytes = static_cast<uint32_t>(std::min<uint64_t>(child.bytes, UINT32_MAX));
    fault.detail = "a copy or fill that a kernel asked for";
    return end(fault);
  } while (child.entry == nullptr);
  uint32_t error = 0;
  const std::shared_ptr<Grid> grid = make_(*child.entry, child.shape, error);
  if (grid == nullptr) {
    exec::Fault fault;
    fault.kind = exec::FaultKind::kTrap;
    fault.kernel = child.entry->name;
    fault.detail = "launched by a kernel, and cannot run any more";
    return end(fault);
  }
  grid->params = std::move(child.params);
  grid->on_done = [self = shared_from_this()](const exec::Fault& fault) {
    if (fault.kind != exec::FaultKind::kNone)
      self->end(fault);
    else
      self->run_next();
  };
  runner_.submit(grid);
}

void ChildGrids::end(const exec::Fault& fault) {
  launched_.clear();
  tail_.clear();
  const Grid::Done done = std::move(done_);
  done_ = nullptr;
  done(fault);
}

}  // namespace sluice::softgpu
