// SPDX-License-Identifier: Apache-2.0
// Memory that graphs allocate and free (cuGraphAddMemAllocNode, and cuMemAllocAsync in a capture).
// CUDA fixes the address when the node is made and backs it while the memory is allocated. Here it
// is backed for as long as a node, an executable graph or the program needs the address: more is
// held than CUDA holds, never less. Whether it counts as allocated follows the order of the
// program's calls. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "abi/cuda_driver.h"

namespace sluice::graphs {

class GraphMemory : public std::enable_shared_from_this<GraphMemory> {
 public:
  // In the current context; the driver's error if there is no room.
  static CUresult make(size_t bytes, std::shared_ptr<GraphMemory>* to);
  // Of an address that such memory begins at; null: none does.
  static std::shared_ptr<GraphMemory> find(CUdeviceptr address);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;

  CUdeviceptr address() const { return address_; }
  uint64_t context() const { return context_; }
  bool allocated() const;
  // False: it already is as requested, or its context has gone and it with it.
  bool set_allocated(bool allocated);
  // Whether its context has gone: nobody's memory lies at the address any more, or somebody else's.
  bool lost() const;
  // An executable graph has the allocation; false: another has it.
  bool take_for_exec();
  void give_back();
  // The context has been destroyed or reset, and its memory with it: works that outlive it only
  // have the address.
  static void forget_context(uint64_t context);

 private:
  GraphMemory() = default;
  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0, context_ = 0;
  bool allocated_ = false, in_exec_ = false, lost_ = false;
};

// cuMemFree and cuMemFreeAsync, of what may be a graph's: nothing, it is not.
std::optional<CUresult> free_graph_memory(CUdeviceptr address);

}  // namespace sluice::graphs
