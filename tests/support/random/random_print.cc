// SPDX-License-Identifier: Apache-2.0
// A random program as PTX.
#include <cstdio>
#include <cstring>

#include "tests/support/random/random_program.h"

namespace sluice::random_kernels {
namespace {

std::string text_of(const Operand& o) {
  char buffer[40];
  const auto value = static_cast<unsigned long long>(o.value);
  if (!o.immediate) {
    std::snprintf(buffer, sizeof buffer, "%%%c%u", o.cls, o.reg);
  } else if (o.cls == 'f') {
    std::snprintf(buffer, sizeof buffer, "0f%08llX", value);
  } else if (o.cls == 'd') {
    std::snprintf(buffer, sizeof buffer, "0d%016llX", value);
  } else if (value < 65536) {
    std::snprintf(buffer, sizeof buffer, "%llu", value);
  } else {
    std::snprintf(buffer, sizeof buffer, "0x%llx", value);
  }
  return buffer;
}

std::string label(uint32_t number) { return "$L" + std::to_string(number); }

std::string arithmetic(const Ins& ins) {
  const std::string_view ptx = op_rows()[ins.sub].ptx;
  if (ptx.find('$') == ptx.npos) {
    std::string text = std::string(ptx) + " " + text_of(ins.d);
    for (const Operand* o : {&ins.a, &ins.b, &ins.c})
      if (o->cls != 0) text += ", " + text_of(*o);
    return text + ";";
  }
  std::string text;
  for (size_t k = 0; k < ptx.size(); ++k) {
    if (ptx[k] != '$') {
      text += ptx[k];
      continue;
    }
    const Operand* const operands[] = {&ins.d, &ins.a, &ins.b, &ins.c};
    text += text_of(*operands[ptx[++k] - '0']);
  }
  return text;
}

std::string list_of(const std::vector<Operand>& operands) {
  if (operands.size() == 1) return text_of(operands[0]);
  std::string text = "{";
  for (size_t k = 0; k < operands.size(); ++k) text += (k == 0 ? "" : ", ") + text_of(operands[k]);
  return text + "}";
}

std::string address_of(const Ins& ins) {
  std::string text = "[" + text_of(ins.a);
  if (ins.imm != 0) text += "+" + std::to_string(ins.imm);
  return text + "]";
}

const char* space_name(MemorySpace space) {
  switch (space) {
    case MemorySpace::kGlobal:
      return ".global";
    case MemorySpace::kShared:
      return ".shared";
    case MemorySpace::kLocal:
      return ".local";
    default:
      return "";
  }
}

std::string access(const Ins& ins) {
  const bool load = ins.code == Code::kLoad;
  std::string text = std::string(load ? "ld" : "st") + space_name(ins.space);
  if (ins.read_only) text += ".nc";
  if (ins.vector.size() > 1) text += ".v" + std::to_string(ins.vector.size());
  const char cls = ins.vector[0].cls;
  text += cls == 'f' || cls == 'd' ? ".f" : ins.is_signed ? ".s" : ins.bytes < 4 ? ".u" : ".b";
  text += std::to_string(ins.bytes * 8) + " ";
  return text +
         (load ? list_of(ins.vector) + ", " + address_of(ins)
               : address_of(ins) + ", " + list_of(ins.vector)) +
         ";";
}

std::string call(const Ins& ins, uint32_t serial) {
  const std::string n = std::to_string(serial);
  std::string text;
  std::string target = "f" + std::to_string(ins.sub);
  if (ins.c.cls != 0) {
    text += "proto" + n + ": .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n\t";
    target = text_of(ins.c);
  }
  // Names of its own: to the assembler those of the function around it are read-only, also in here.
  text += "{ .param .b32 to0; .param .b32 to1; .param .b32 from; st.param.b32 [to0], " +
          text_of(ins.a) + "; st.param.b32 [to1], " + text_of(ins.b) + "; call (from), " + target +
          ", (to0, to1)" + (ins.c.cls != 0 ? ", proto" + n : std::string()) + "; ld.param.b32 " +
          text_of(ins.d) + ", [from]; }";
  return text;
}

std::string statement(const Ins& ins, uint32_t serial) {
  static constexpr const char* kVotes[] = {"all.pred", "any.pred", "uni.pred", "ballot.b32"};
  static constexpr const char* kShuffles[] = {"up", "down", "bfly", "idx"};
  static constexpr const char* kParams[] = {"input", "output", "accumulators", "scalar"};
  const std::string d = text_of(ins.d), a = text_of(ins.a), b = text_of(ins.b);
  switch (ins.code) {
    case Code::kOp:
      return arithmetic(ins);
    case Code::kSpecial:
      return "mov.u32 " + d + ", " + kSpecials[ins.sub] + ";";
    case Code::kParam:
      if (ins.sub == 4) return "ld.param.b32 " + d + ", [big+" + std::to_string(ins.imm) + "];";
      return std::string(ins.sub == 3 ? "ld.param.u32 " : "ld.param.u64 ") + d + ", [" +
             kParams[ins.sub] + "];" +
             (ins.sub == 3 ? "" : " cvta.to.global.u64 " + d + ", " + d + ";");
    case Code::kAddress:
      if (ins.sub == 0) return "mov.u32 " + d + ", sh;";
      if (ins.sub == 1) return "mov.u64 " + d + ", loc;";
      if (ins.sub == 2) return "mov.u64 " + d + ", sh; cvta.shared.u64 " + d + ", " + d + ";";
      return "mov.u64 " + d + ", loc; cvta.local.u64 " + d + ", " + d + ";";
    case Code::kFunctionAddress:
      return "mov.u64 " + d + ", f" + std::to_string(ins.sub) + ";";
    case Code::kLabel:
      return label(ins.sub) + ":";
    case Code::kBranch:
      return "bra " + label(ins.sub) + ";";
    case Code::kSwitch: {
      std::string text = "targets" + std::to_string(ins.sub) + ": .branchtargets ";
      for (size_t k = 0; k < ins.labels.size(); ++k)
        text += (k == 0 ? "" : ", ") + label(ins.labels[k]);
      return text + ";\n\tbrx.idx " + a + ", targets" + std::to_string(ins.sub) + ";";
    }
    case Code::kBarrier:
      if (ins.sub == 0) return "bar.sync 0;";
      return (ins.sub == 1 ? "barrier.sync " : "barrier.arrive ") + b + ", " + text_of(ins.c) + ";";
    case Code::kBarrierReduce:
      return ins.sub == 0 ? "bar.red.popc.u32 " + d + ", 0, " + a + ";"
                          : std::string("bar.red.") + (ins.sub == 1 ? "and" : "or") + ".pred " + d +
                                ", 0, " + a + ";";
    case Code::kVote:
      return std::string("vote.sync.") + kVotes[ins.sub] + " " + d + ", " + a + ", " +
             text_of(ins.mask) + ";";
    case Code::kShuffle:
      return std::string("shfl.sync.") + kShuffles[ins.sub] + ".b32 " + d +
             (ins.d2.cls != 0 ? "|" + text_of(ins.d2) : "") + ", " + a + ", " + b + ", " +
             text_of(ins.c) + ", " + text_of(ins.mask) + ";";
    case Code::kMatch:
      return std::string("match.") + (ins.sub == 0 ? "any" : "all") + ".sync." +
             (ins.a.cls == 'q' ? "b64 " : "b32 ") + d +
             (ins.d2.cls != 0 ? "|" + text_of(ins.d2) : "") + ", " + a + ", " + text_of(ins.mask) +
             ";";
    case Code::kReduce: {
      const std::string_view name = kReduceNames[ins.sub];
      return "redux.sync." + std::string(name) + " " + d + ", " + a + ", " + text_of(ins.mask) +
             ";";
    }
    case Code::kWarpSync:
      return "bar.warp.sync " + text_of(ins.mask) + ";";
    case Code::kLoad:
    case Code::kStore:
      return access(ins);
    case Code::kAtomic: {
      const AtomicRow& row = atomic_rows()[ins.sub];
      const char* space = space_name(ins.space);
      if (!ins.returns)
        return std::string("red") + space + "." + row.ptx + " " + address_of(ins) + ", " + b + ";";
      // What it returns depends on the order of blocks: to a register that nothing reads, or loops
      // would seem to wait for it.
      return std::string("atom") + space + "." + row.ptx + " %" + row.cls + "old, " +
             address_of(ins) + ", " + b + ";";
    }
    case Code::kCall:
      return call(ins, serial);
    case Code::kExit:
      return ins.sub == 0 && (serial & 1) != 0 ? "ret;" : "exit;";
  }
  return {};
}

void body(std::string& text, const std::vector<Ins>& code, uint32_t& serial) {
  for (const Ins& ins : code) {
    if (ins.code != Code::kLabel) text += '\t';
    if (ins.guard.cls != 0)
      text += std::string("@") + (ins.guard_not ? "!" : "") + text_of(ins.guard) + " ";
    text += statement(ins, serial++) + '\n';
  }
}

std::string registers() {
  std::string text;
  const char* const types[] = {"b32", "b64", "b16", "f32", "f64", "pred"};
  for (uint32_t k = 0; k < kClassCount; ++k) {
    const std::string name = std::string("%") + kClasses[k];
    text += std::string("\t.reg .") + types[k] + " " + name + "<" +
            std::to_string(kRegistersPerClass) + ">;\n\t.reg ." + types[k] + " " + name + "t, " +
            name + "old;\n";
  }
  return text;
}

}  // namespace

std::string print_program(const RandomProgram& program) {
  uint32_t serial = 0;
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n\n";
  if (program.dynamic_shared) text += ".extern .shared .align 16 .b8 sh[];\n";
  for (size_t k = 0; k < program.functions.size(); ++k) {
    text += ".func (.param .b32 back) f" + std::to_string(k) +
            "(.param .b32 a0, .param .b32 a1)\n{\n" + registers() +
            "\tld.param.b32 %r0, [a0];\n\tld.param.b32 %r1, [a1];\n";
    body(text, program.functions[k].code, serial);
    text += "\tst.param.b32 [back], %r2;\n\tret;\n}\n";
  }
  text +=
      ".visible .entry k(.param .u64 input, .param .u64 output, .param .u64 accumulators, "
      ".param .u32 scalar" +
      (program.big_parameter == 0
           ? std::string()
           : ", .param .align 4 .b8 big[" + std::to_string(program.big_parameter) + "]") +
      ")\n{\n" + registers();
  if (!program.dynamic_shared && program.shared_bytes != 0)
    text += "\t.shared .align 16 .b8 sh[" + std::to_string(program.shared_bytes) + "];\n";
  if (program.local_bytes != 0)
    text += "\t.local .align 16 .b8 loc[" + std::to_string(program.local_bytes) + "];\n";
  body(text, program.code, serial);
  return text + "}\n";
}

}  // namespace sluice::random_kernels
