// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/stack_slots.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "kernels/passes/analysis/places.h"
#include "kernels/ptx/registers.h"

namespace sluice::passes {

using ptx::base_opcode;
using ptx::Statement;
using ptx::StatementKind;

namespace {

// Registers of the copy: no digit at the end, so that no set of registers (`%r<9>`) declares them.
constexpr std::string_view kSlot = "%_slot";

// A load or store that reads or writes one whole element of a frame.
struct SlotAccess {
  std::uint32_t statement = 0;
  std::int64_t offset = 0;
  std::uint32_t bytes = 0;
};
struct Frame {
  std::vector<SlotAccess> accesses;
  bool escapes = false;  // its address goes where it is not followed
};

std::uint32_t element_bytes(std::string_view opcode) {
  const std::string_view type = opcode.substr(opcode.rfind('.') + 1);
  if (type.size() < 2 || std::string_view("bsuf").find(type[0]) == type.npos) return 0;
  const std::string_view bits = type.substr(1);
  return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
}

// Whether a load or store may be of local memory.
bool may_be_local(const Statement& s) {
  for (const std::string_view other : {"global", "shared", "const", "param"})
    if (s.opcode.find("." + std::string(other)) != s.opcode.npos) return false;
  return true;
}

class Frames {
 public:
  explicit Frames(const ptx::Function& f) : function_(f), registers_(f), sums_(f, registers_) {
    for (const ptx::Variable& v : f.variables)
      if (v.space == ptx::Space::kLocal) frames_[Sums::local_part(v.name, v.scope)];
    if (frames_.empty()) return;
    for (const Statement& s : f.statements)
      if (s.kind == StatementKind::kInstruction) look(s);
  }
  const std::map<std::string, Frame>& frames() const { return frames_; }

 private:
  // The frame that an operand is an address in, and where.
  Frame* frame_of(std::string_view operand, const Statement& s, std::int64_t& offset) {
    const Sum sum = sums_.of(operand, s);
    if (sum.parts.size() != 1 || sum.parts.begin()->second != 1) return nullptr;
    const auto found = frames_.find(sum.parts.begin()->first);
    offset = sum.constant;
    return found == frames_.end() ? nullptr : &found->second;
  }

  void look(const Statement& s) {
    const std::string_view base = base_opcode(s.opcode);
    const bool load = base == "ld", store = base == "st";
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      std::size_t at = 0;
      for (std::string_view name = ptx::next_identifier(s.operands[k], at); !name.empty();
           name = ptx::next_identifier(s.operands[k], at)) {
        std::int64_t offset = 0;
        Frame* frame = frame_of(name, s, offset);
        if (frame == nullptr) continue;
        const bool address = (load && k == 1) || (store && k == 0);
        if (address && s.operands.size() == 2 && frame_of(s.operands[k], s, offset) == frame) {
          add_access(*frame, s, offset);
        } else if (!keeps(s, frame)) {
          frame->escapes = true;
        }
      }
    }
  }

  void add_access(Frame& frame, const Statement& s, std::int64_t offset) {
    const std::uint32_t bytes = element_bytes(s.opcode);
    const std::string_view value = s.operands[base_opcode(s.opcode) == "ld" ? 0 : 1];
    if (bytes == 0 || !may_be_local(s) || value.starts_with('{')) frame.escapes = true;
    frame.accesses.push_back(
        {static_cast<std::uint32_t>(&s - function_.statements.data()), offset, bytes});
  }

  // Whether an instruction makes one address in a frame of another and nothing else.
  bool keeps(const Statement& s, const Frame* frame) {
    const std::string_view base = base_opcode(s.opcode);
    if (base != "mov" && base != "cvta" && base != "add" && base != "sub" && base != "or")
      return false;
    std::int64_t offset = 0;
    return !s.operands.empty() && frame_of(s.operands[0], s, offset) == frame;
  }

  const ptx::Function& function_;
  ptx::RegisterTable registers_;
  Sums sums_;
  std::map<std::string, Frame> frames_;
};

// The accesses of each slot, by its offset; none for slots that overlap others.
std::map<std::int64_t, std::vector<SlotAccess>> slots_of(const Frame& frame) {
  std::map<std::int64_t, std::vector<SlotAccess>> all, slots;
  for (const SlotAccess& a : frame.accesses) all[a.offset].push_back(a);
  std::int64_t end = INT64_MIN;  // of the slots so far
  for (auto it = all.begin(); it != all.end(); ++it) {
    std::int64_t longest = 0;
    bool apart = it->first >= end;
    for (const SlotAccess& a : it->second) {
      apart &= a.bytes == it->second[0].bytes;
      longest = std::max(longest, std::int64_t{a.bytes});
    }
    end = std::max(end, it->first + longest);
    const auto next = std::next(it);
    if (apart && (next == all.end() || next->first >= end)) slots.insert(*it);
  }
  return slots;
}

}  // namespace

StackSlots::StackSlots(const ptx::Function& function) {
  bool local = false;
  for (const ptx::Variable& v : function.variables) {
    local |= v.space == ptx::Space::kLocal;
    if (v.name.starts_with(kSlot)) return;
  }
  if (!local) return;
  const Frames found(function);
  for (const auto& [name, frame] : found.frames()) any_ |= !frame.accesses.empty();
  if (!any_) return;
  copy_ = function;
  std::size_t number = 0;
  for (const auto& [name, frame] : found.frames()) {
    for (const SlotAccess& a : frame.accesses) {
      Statement& s = copy_.statements[a.statement];
      if (!may_be_local(s) || ptx::has_modifier(s.opcode, "local")) continue;
      names_.push_back(std::string(s.opcode.substr(0, 2)) + ".local" +
                       std::string(s.opcode.substr(2)));
      s.opcode = names_.back();
    }
    if (frame.escapes) continue;
    for (const auto& [offset, accesses] : slots_of(frame)) {
      names_.push_back(std::string(kSlot) + std::to_string(number++) + "_");
      ptx::Variable v;
      v.space = ptx::Space::kReg;
      v.type = "b64";
      v.name = names_.back();
      copy_.variables.push_back(v);
      for (const SlotAccess& a : accesses) {
        Statement& s = copy_.statements[a.statement];
        const bool load = base_opcode(s.opcode) == "ld";
        operands_.push_back(load ? std::array{s.operands[0], v.name}
                                 : std::array{v.name, s.operands[1]});
        s.opcode = "mov.b64";
        s.operands = operands_.back();
      }
    }
  }
}

}  // namespace sluice::passes
