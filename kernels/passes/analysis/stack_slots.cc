// SPDX-License-Identifier: Apache-2.0
#include "kernels/passes/analysis/stack_slots.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
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
  // Frames in which its address is kept, perhaps itself: it has not gone anywhere if they become
  // registers.
  std::set<std::string> kept_in;
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
  using Found = std::map<std::string, Frame>::iterator;
  // The frame that an operand is an address in, and where.
  Found find(std::string_view operand, const Statement& s, std::int64_t& offset) {
    const Sum sum = sums_.of(operand, s);
    if (sum.parts.size() != 1 || sum.parts.begin()->second != 1) return frames_.end();
    offset = sum.constant;
    return frames_.find(sum.parts.begin()->first);
  }
  Frame* frame_of(std::string_view operand, const Statement& s, std::int64_t& offset) {
    const Found found = find(operand, s, offset);
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
        } else if (const Found to =
                       store && k == 1 && name == s.operands[1] && element_bytes(s.opcode) == 8
                           ? find(s.operands[0], s, offset)
                           : frames_.end();
                   to != frames_.end()) {
          frame->kept_in.insert(to->first);
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

  // Whether an instruction makes one address in a frame of another and nothing else, or asks
  // whether it is null, as `this` is asked before each call of a member.
  bool keeps(const Statement& s, const Frame* frame) {
    const std::string_view base = base_opcode(s.opcode);
    if (base == "setp") return true;
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

bool overlap(std::int64_t a, std::int64_t a_bytes, std::int64_t b, std::int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

// What has become of a function so far. Where a frame's address is kept in another frame, reads of
// it are followed only once that one's slots are registers, so it goes by rounds. That addresses in
// slots go nowhere else is assumed until a round shows the opposite.
class StackSlots::Rounds {
 public:
  Rounds(StackSlots& out, const ptx::Function& function) : out_(out), function_(function) {}

  void run() {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      // The last one assumes nothing.
      if (try_out(attempt + 1 < kMostAttempts)) return;
    }
  }

 private:
  static constexpr int kMostAttempts = 6, kMostRounds = 16;

  // False: a frame's address was seen to go somewhere, which is known now.
  bool try_out(bool assuming) {
    out_.copy_ = function_;
    out_.names_.clear();
    out_.operands_.clear();
    slots_.clear();
    bool kept = false;  // some address, somewhere
    for (int round = 0; round < kMostRounds; ++round) {
      const Frames found(out_.copy_);
      const std::size_t escaped = escaped_.size();
      find_escaped(found, assuming);
      if (round != 0 && escaped_.size() != escaped) return false;
      std::size_t moved = 0;
      for (const auto& [name, frame] : found.frames()) {
        mark_local(frame);
        kept |= !frame.kept_in.empty();
        if (escaped_.count(name) != 0) continue;
        if (!move_to_registers(name, frame, moved)) return false;
      }
      if (!assuming || !kept) return true;
      if (moved != 0) continue;
      // What still keeps an address is memory.
      for (const auto& [name, frame] : found.frames())
        if (!frame.kept_in.empty()) escaped_.insert(name);
      return escaped_.size() == escaped;
    }
    return false;
  }

  void find_escaped(const Frames& found, bool assuming) {
    for (std::size_t before = SIZE_MAX; before != escaped_.size();) {
      before = escaped_.size();
      for (const auto& [name, frame] : found.frames())
        if (frame.escapes || (!assuming && !frame.kept_in.empty()) ||
            std::any_of(frame.kept_in.begin(), frame.kept_in.end(),
                        [&](const std::string& in) { return escaped_.count(in) != 0; }))
          escaped_.insert(name);
    }
  }

  void mark_local(const Frame& frame) {
    for (const SlotAccess& a : frame.accesses) {
      Statement& s = out_.copy_.statements[a.statement];
      if (!may_be_local(s) || ptx::has_modifier(s.opcode, "local")) continue;
      out_.names_.push_back(std::string(s.opcode.substr(0, 2)) + ".local" +
                            std::string(s.opcode.substr(2)));
      s.opcode = out_.names_.back();
      out_.any_ = true;
    }
  }

  // The accesses of slots; those that overlap others stay. False: one overlaps what an earlier
  // round has moved.
  bool move_to_registers(const std::string& name, const Frame& frame, std::size_t& moved) {
    auto& slots = slots_[name];
    std::map<std::int64_t, std::vector<SlotAccess>> by_offset;
    for (const SlotAccess& a : frame.accesses) by_offset[a.offset].push_back(a);
    std::map<std::int64_t, std::int64_t> longest;
    for (const auto& [offset, accesses] : by_offset)
      for (const SlotAccess& a : accesses)
        longest[offset] = std::max(longest[offset], std::int64_t{a.bytes});
    std::int64_t end = INT64_MIN;  // of those so far
    for (auto it = by_offset.begin(); it != by_offset.end(); ++it) {
      const auto& [offset, accesses] = *it;
      for (const auto& [other, slot] : slots)
        if (overlap(offset, longest[offset], other, slot.bytes) &&
            (offset != other ||
             std::any_of(accesses.begin(), accesses.end(),
                         [bytes = slot.bytes](const auto& a) { return a.bytes != bytes; }))) {
          escaped_.insert(name);
          return false;
        }
      bool apart = offset >= end;
      for (const SlotAccess& a : accesses) apart &= a.bytes == accesses[0].bytes;
      end = std::max(end, offset + longest[offset]);
      const auto next = std::next(it);
      if (!apart || (next != by_offset.end() && next->first < end)) continue;
      Slot& slot = slots[offset];
      if (slot.name.empty()) slot = add_register(accesses[0].bytes);
      for (const SlotAccess& a : accesses) become_move(out_.copy_.statements[a.statement], slot);
      moved += accesses.size();
    }
    return true;
  }

  struct Slot {
    std::string_view name;
    std::int64_t bytes = 0;
  };
  Slot add_register(std::int64_t bytes) {
    out_.names_.push_back(std::string(kSlot) + std::to_string(out_.names_.size()) + "_");
    ptx::Variable v;
    v.space = ptx::Space::kReg;
    v.type = "b64";
    v.name = out_.names_.back();
    out_.copy_.variables.push_back(v);
    return {out_.names_.back(), bytes};
  }
  void become_move(Statement& s, const Slot& slot) {
    const bool load = base_opcode(s.opcode) == "ld";
    out_.operands_.push_back(load ? std::array{s.operands[0], slot.name}
                                  : std::array{slot.name, s.operands[1]});
    s.opcode = "mov.b64";
    s.operands = out_.operands_.back();
    out_.any_ = true;
  }

  StackSlots& out_;
  const ptx::Function& function_;
  std::set<std::string> escaped_;                              // frames, of all attempts
  std::map<std::string, std::map<std::int64_t, Slot>> slots_;  // by frame and offset
};

StackSlots::StackSlots(const ptx::Function& function) {
  bool local = false;
  for (const ptx::Variable& v : function.variables) {
    local |= v.space == ptx::Space::kLocal;
    if (v.name.starts_with(kSlot)) return;
  }
  if (local) Rounds(*this, function).run();
}

}  // namespace sluice::passes
