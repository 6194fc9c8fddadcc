// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/graphs/memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "abi/cuda_graph.h"
#include "guest-agent/graphs/driver.h"

namespace sluice::graphs {

namespace {

// Taken inside the graphs' lock, never the other way round; never held over a call.
struct AllMemory {
  std::mutex mutex;
  std::map<CUdeviceptr, GraphMemory*> all;  // what ends takes itself out before anything else
  // What the program has allocated stays, whatever becomes of the graphs.
  std::map<CUdeviceptr, std::shared_ptr<GraphMemory>> allocated;
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};
AllMemory& all() {
  static auto* it = new AllMemory;
  return *it;
}

}  // namespace

CUresult GraphMemory::make(size_t bytes, std::shared_ptr<GraphMemory>* to) {
  const Caller e = enter_context();
  if (!e) return e.status;
  std::shared_ptr<GraphMemory> made(new GraphMemory);
  const CUresult r = driver().allocate(bytes, &made->address_);
  if (r != CUDA_SUCCESS) return r;
  made->bytes_ = bytes;
  made->context_ = e.context;
  AllMemory& a = all();
  std::lock_guard lock(a.mutex);
  a.all[made->address_] = made.get();
  a.reserved += bytes;
  a.reserved_high = std::max(a.reserved_high, a.reserved);
  *to = std::move(made);
  return CUDA_SUCCESS;
}

GraphMemory::~GraphMemory() {
  if (address_ == 0) return;
  {
    AllMemory& a = all();
    std::lock_guard lock(a.mutex);
    if (lost_) return;
    a.all.erase(address_);
    a.reserved -= bytes_;
  }
  driver().release(context_, address_);
}

std::shared_ptr<GraphMemory> GraphMemory::find(CUdeviceptr address) {
  AllMemory& a = all();
  std::lock_guard lock(a.mutex);
  const auto it = a.all.find(address);
  return it == a.all.end() ? nullptr : it->second->weak_from_this().lock();
}

bool GraphMemory::allocated() const {
  std::lock_guard lock(all().mutex);
  return allocated_;
}

bool GraphMemory::set_allocated(bool allocated) {
  std::shared_ptr<GraphMemory> last;  // given up outside the lock
  AllMemory& a = all();
  std::lock_guard lock(a.mutex);
  if (lost_ || allocated_ == allocated) return false;
  allocated_ = allocated;
  if (allocated) {
    a.allocated[address_] = shared_from_this();
    a.used += bytes_;
    a.used_high = std::max(a.used_high, a.used);
  } else {
    const auto it = a.allocated.find(address_);
    last = std::move(it->second);
    a.allocated.erase(it);
    a.used -= bytes_;
  }
  return true;
}

bool GraphMemory::lost() const {
  std::lock_guard lock(all().mutex);
  return lost_;
}

void GraphMemory::forget_context(uint64_t context) {
  std::vector<std::shared_ptr<GraphMemory>> last;  // given up outside the lock
  AllMemory& a = all();
  std::lock_guard lock(a.mutex);
  for (auto it = a.all.begin(); it != a.all.end();) {
    GraphMemory& memory = *it->second;
    if (memory.context_ != context) {
      ++it;
      continue;
    }
    memory.lost_ = true;
    memory.allocated_ = false;
    a.reserved -= memory.bytes_;
    if (const auto held = a.allocated.find(it->first); held != a.allocated.end()) {
      a.used -= memory.bytes_;
      last.push_back(std::move(held->second));
      a.allocated.erase(held);
    }
    it = a.all.erase(it);
  }
}

bool GraphMemory::take_for_exec() {
  std::lock_guard lock(all().mutex);
  if (in_exec_) return false;
  in_exec_ = true;
  return true;
}
void GraphMemory::give_back() {
  std::lock_guard lock(all().mutex);
  in_exec_ = false;
}

std::optional<CUresult> free_graph_memory(CUdeviceptr address) {
  const auto memory = GraphMemory::find(address);
  if (memory == nullptr) return std::nullopt;
  return memory->set_allocated(false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace sluice::graphs

using namespace sluice::graphs;

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const Caller e = enter();
  if (!e) return e.status;
  // Nothing is kept that no graph and no program needs.
  return driver().has_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  const Caller e = enter();
  if (!e) return e.status;
  if (!driver().has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  AllMemory& a = all();
  std::lock_guard lock(a.mutex);
  const cuuint64_t values[] = {a.used, a.used_high, a.reserved, a.reserved_high};
  if (value == nullptr || attr < 0 || static_cast<size_t>(attr) >= std::size(values))
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<cuuint64_t*>(value) = values[attr];
  return CUDA_SUCCESS;
}

// The high marks, and only back to what is.
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  const Caller e = enter();
  if (!e) return e.status;
  if (!driver().has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  AllMemory& a = all();
  std::lock_guard lock(a.mutex);
  if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
    a.used_high = a.used;
  else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    a.reserved_high = a.reserved;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
