// SPDX-License-Identifier: Apache-2.0
// SharedMemory: the device memory of a session that other programs of its vGPU may open, and what
// it has opened of theirs. Pure bookkeeping; calls/ipc_calls.cc makes the calls.
//
//   exports  by what is shared: on NVIDIA's driver an allocation, on the software GPU its pages, in
//            which other allocations may lie
//   imports  by token; each is one mapping, however often it was opened
//
// Owned by the WorkerSession, used under its lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/core/worker_protocol.h"

namespace sluice::worker {

struct ContextObject;

class SharedMemory {
 public:
  using Wire = worker_protocol::ShareKey;
  struct Import {
    Wire wire;
    uint64_t base = 0, bytes = 0;
    uint64_t uses = 0;
    std::shared_ptr<ContextObject> context;
  };

  // sluiced's answer to the call that the job thread makes again, and its file. Job thread, without
  // the lock.
  struct Reply {
    worker_protocol::Message message;
    std::shared_ptr<Fd> file;
  };
  std::optional<Reply> reply;

  const Wire* exported(uint64_t key) const {
    const auto it = exports_.find(key);
    return it == exports_.end() ? nullptr : &it->second.wire;
  }
  // The allocation that begins at `base` may be opened as what `key` is.
  void add_export(uint64_t key, uint64_t base, const Wire& wire) {
    Export& of = exports_[key];
    of.wire = wire;
    of.allocations.insert(base);
    keys_[base] = key;
  }
  // The allocation is freed. Its export, if this was the last one of it.
  std::optional<Wire> forget(uint64_t base) {
    const auto key = keys_.find(base);
    if (key == keys_.end()) return {};
    const auto it = exports_.find(key->second);
    keys_.erase(key);
    it->second.allocations.erase(base);
    if (!it->second.allocations.empty()) return {};
    const Wire wire = it->second.wire;
    exports_.erase(it);
    return wire;
  }
  bool is_exported(uint64_t base) const { return keys_.contains(base); }
  bool is_own(const Wire& wire) const {
    return std::any_of(exports_.begin(), exports_.end(),
                       [&](const auto& e) { return same(e.second.wire, wire); });
  }

  Import* find_import(const Wire& wire) {
    for (auto& [base, import] : imports_)
      if (same(import.wire, wire)) return &import;
    return nullptr;
  }
  // The one in which the address lies.
  Import* find_import(uint64_t address) {
    auto it = imports_.upper_bound(address);
    if (it == imports_.begin()) return nullptr;
    --it;
    return address - it->first < it->second.bytes ? &it->second : nullptr;
  }
  void add_import(const Import& import) { imports_[import.base] = import; }
  void remove_import(uint64_t base) { imports_.erase(base); }
  std::vector<Import> take_imports(const ContextObject* of) {
    std::vector<Import> taken;
    for (const auto& [base, import] : imports_)
      if (import.context.get() == of) taken.push_back(import);
    for (const auto& import : taken) imports_.erase(import.base);
    return taken;
  }

 private:
  struct Export {
    Wire wire;
    std::set<uint64_t> allocations;
  };
  static bool same(const Wire& a, const Wire& b) {
    return std::memcmp(a.token, b.token, sizeof a.token) == 0;
  }

  std::map<uint64_t, Export> exports_;
  std::map<uint64_t, uint64_t> keys_;  // by allocation
  std::map<uint64_t, Import> imports_;
};

}  // namespace sluice::worker
