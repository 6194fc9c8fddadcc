// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/decode/stack_depth.h"

#include <algorithm>

namespace sluice::exec::detail {
namespace {

constexpr uint32_t kUnseen = 0xffffffffu;

// Strongly connected components in the order in which they are finished, callees before callers
// (Tarjan, "Depth-first search and linear graph algorithms", 1972), without recursion of our own:
// the graph comes from a guest.
struct Components {
  const std::vector<std::vector<uint32_t>>& out;
  std::vector<uint32_t> number, low, of;  // per node
  std::vector<std::vector<uint32_t>> all;

  explicit Components(const std::vector<std::vector<uint32_t>>& edges)
      : out(edges), number(edges.size(), kUnseen), low(edges.size()), of(edges.size(), kUnseen) {
    for (uint32_t v = 0; v < out.size(); ++v)
      if (number[v] == kUnseen) visit(v);
  }

 private:
  uint32_t count_ = 0;
  std::vector<uint32_t> stack_;

  void visit(uint32_t start) {
    std::vector<std::pair<uint32_t, size_t>> path;
    const auto enter = [&](uint32_t v) {
      number[v] = low[v] = count_++;
      stack_.push_back(v);
      path.emplace_back(v, 0);
    };
    enter(start);
    while (!path.empty()) {
      const uint32_t v = path.back().first;
      if (path.back().second < out[v].size()) {
        const uint32_t to = out[v][path.back().second++];
        if (number[to] == kUnseen)
          enter(to);
        else if (of[to] == kUnseen)
          low[v] = std::min(low[v], number[to]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().first] = std::min(low[path.back().first], low[v]);
      if (low[v] != number[v]) continue;
      all.emplace_back();
      uint32_t member;
      do {
        member = stack_.back();
        stack_.pop_back();
        of[member] = static_cast<uint32_t>(all.size() - 1);
        all.back().push_back(member);
      } while (member != v);
    }
  }
};

}  // namespace

void measure_stacks(ModuleContext& module) {
  ProgramData& program = *module.program;
  const size_t callees = module.callees.size();
  std::unordered_map<uint32_t, std::vector<uint32_t>> by_signature;
  for (const Callee& callee : module.callees)
    if (callee.address_taken) by_signature[callee.layout.signature].push_back(callee.index);
  // A signature is a node of its own between those that call it and those that have it: otherwise
  // there would be as many edges as pairs.
  const auto first_signature = static_cast<uint32_t>(module.nodes.size());
  std::vector<std::vector<uint32_t>> out(first_signature + module.signatures.size() + 1);
  for (size_t v = 0; v < module.nodes.size(); ++v) {
    out[v] = module.nodes[v].callees;
    for (const uint32_t s : module.nodes[v].signatures) out[v].push_back(first_signature + s);
    std::sort(out[v].begin(), out[v].end());
    out[v].erase(std::unique(out[v].begin(), out[v].end()), out[v].end());
  }
  for (auto& [signature, functions] : by_signature) out[first_signature + signature] = functions;

  const Components components(out);
  std::vector<uint64_t> depth(components.all.size(), 0);  // bytes, without the kernels' own
  std::vector<bool> dynamic(components.all.size(), false);
  for (size_t c = 0; c < components.all.size(); ++c) {
    const std::vector<uint32_t>& members = components.all[c];
    const bool cycle = members.size() > 1 || std::binary_search(out[members[0]].begin(),
                                                                out[members[0]].end(), members[0]);
    uint64_t own = 0, below = 0;
    dynamic[c] = cycle;
    for (const uint32_t v : members) {
      if (v < callees) {
        own += program.code.callables[v].frame_bytes;
        program.code.callables[v].recursive = cycle;
      }
      if (v < module.nodes.size() && module.nodes[v].alloca) dynamic[c] = true;
      for (const uint32_t to : out[v]) {
        const uint32_t other = components.of[to];
        if (other == c) continue;
        below = std::max(below, depth[other]);
        if (dynamic[other]) dynamic[c] = true;
      }
    }
    depth[c] = own + below;
  }
  for (size_t k = 0; k < program.entries.size(); ++k) {
    const uint32_t c = components.of[callees + k];
    EntryCode& code = program.entry_code[k];
    code.dynamic_stack = program.entries[k].dynamic_stack = dynamic[c];
    program.entries[k].local_bytes =
        static_cast<uint32_t>(std::min<uint64_t>(code.frame_bytes + depth[c], 0xffffffffu));
  }
}

}  // namespace sluice::exec::detail
