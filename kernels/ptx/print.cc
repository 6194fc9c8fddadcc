// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/print.h"

#include "kernels/ptx/parse/cursor.h"

namespace sluice::ptx {

namespace {

class Printer {
 public:
  explicit Printer(const Module& module) : module_(module), text_(module.text()) {}

  Result<std::string> run() {
    out_.reserve(text_.size());
    for (const Item& item : module_.items()) {
      gap(item.range.begin);
      if (item.kind == Item::Kind::kFunction) {
        function(module_.functions()[item.index]);
      } else {
        copy(item.range.end);
      }
    }
    gap(static_cast<std::uint32_t>(text_.size()));
    if (lost_ != 0)
      return Error{0, "bytes before offset " + std::to_string(lost_) + " belong to no statement"};
    return std::move(out_);
  }

 private:
  void function(const Function& f) {
    if (!f.has_body || !f.not_understood.empty()) return copy(f.range.end);
    copy(f.body_range.begin + 1);
    for (const Statement& s : f.statements) {
      gap(s.range.begin);
      copy(s.range.end);
    }
    gap(f.range.end - 1);
    copy(f.range.end);
  }

  void copy(std::uint32_t end) {
    out_.append(text_.substr(at_, end - at_));
    at_ = end;
  }

  // What lies between statements must be nothing but trivia.
  void gap(std::uint32_t end) {
    const std::string_view between = text_.substr(0, end);
    Cursor cursor(between, at_);
    if ((!cursor.skip_trivia() || !cursor.at_end()) && lost_ == 0) lost_ = end;
    copy(end);
  }

  const Module& module_;
  std::string_view text_;
  std::string out_;
  std::uint32_t at_ = 0;
  std::uint32_t lost_ = 0;
};

const char* kind_name(StatementKind kind) {
  switch (kind) {
    case StatementKind::kLabel:
      return "label";
    case StatementKind::kInstruction:
      return "instruction";
    case StatementKind::kDeclaration:
      return "declaration";
    case StatementKind::kDirective:
      return "directive";
    case StatementKind::kScopeOpen:
      return "open";
    case StatementKind::kScopeClose:
      return "close";
  }
  return "?";
}

}  // namespace

Result<std::string> print(const Module& module) { return Printer(module).run(); }

std::string list_statements(const Function& function) {
  std::string out;
  for (const Statement& s : function.statements) {
    out +=
        std::to_string(s.line) + "\t" + std::to_string(s.scope) + "\t" + kind_name(s.kind) + "\t";
    if (!s.guard.empty()) {
      out += s.guard_negated ? "@!" : "@";
      out.append(s.guard) += ' ';
    }
    out.append(s.opcode);
    for (std::string_view operand : s.operands) (out += " <").append(operand) += '>';
    out += '\n';
  }
  return out;
}

}  // namespace sluice::ptx
