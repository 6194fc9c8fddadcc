// The plain pass: a persistent loop over block-tasks, for kernels whose threads all come to the end
// of a task without owing each other a barrier (87.6 % of the 3,921 kernels surveyed). The loop
// itself: loop_head.h.
#include <cstddef>

#include "abi/preempt.h"
#include "kernels/passes/block_index.h"
#include "kernels/passes/emitter.h"
#include "kernels/passes/loop_head.h"
#include "kernels/passes/pass.h"
#include "kernels/ptx/edit.h"

namespace sluice::passes {

namespace {

using ptx::Function;
using ptx::Module;
using ptx::Statement;
using ptx::StatementKind;

// Parameter space and static shared memory that a kernel may use (PTX ISA, "Kernel Function
// Parameters": 4,352 bytes up to ISA 8.0, of which the driver allows 4,096; 32,764 from 8.1).
constexpr std::uint64_t kMaxParamBytesOld = 4096;
constexpr std::uint64_t kMaxParamBytes = 32764;
constexpr std::uint64_t kMaxStaticSharedBytes = 48 * 1024;

class PlainPass {
 public:
  explicit PlainPass(const PassInput& in) : in_(in), out_(in.module, in.prefix) {}

  Outcome run() {
    if (std::string why = refusal(); !why.empty()) return no(std::move(why));
    parameters_ = out_.name("~launch");
    if (std::string why = edit_body(); !why.empty()) return no(std::move(why));
    edit_header();
    LoopOptions options;
    options.reads_ctaid = in_.facts.reads_ctaid;
    options.dynamic_shared = in_.facts.dynamic_shared;
    options.loose_lanes =
        in_.facts.has_divergent_branch && in_.module.version() >= Module::Version{6, 0};
    if (in_.facts.has_cp_async) options.clean_up.push_back("cp.async.wait_all;");  // R27
    LoopHead head(options, out_);
    head.write_before_body();
    edits_.insert(in_.entry.body_range.begin + 1, std::string("\n").append(out_.take()));
    head.write_after_body();
    edits_.insert(in_.entry.body_range.end - 1, std::string("\n").append(out_.take()));
    Outcome outcome;
    outcome.tier = Tier::kPlain;
    outcome.slot = dynamic() ? SlotPlace::kDynamicEnd : SlotPlace::kStatic;
    outcome.clone = edits_.apply(in_.module.text(), in_.entry.range);
    return outcome;
  }

 private:
  static Outcome no(std::string why) {
    return {{}, std::move(why), Tier::kOpaque, SlotPlace::kNone};
  }
  bool dynamic() const { return !in_.facts.dynamic_shared.empty(); }

  // Why this kernel is none of ours; empty: it is.
  std::string refusal() const {
    const KernelFacts& facts = in_.facts;
    if (!facts.blocker.empty()) return facts.blocker;
    if (!facts.divergent_barrier.empty()) return facts.divergent_barrier;
    if (!facts.divergent_collective.empty()) return facts.divergent_collective;
    if (in_.module.address_size() != 64) return "has 32-bit addresses";
    if (in_.module.sm() < 20) return "is for a target that is not known";
    const std::uint64_t bytes = block_offset() + SLUICE_PREEMPT_PARAMS_BYTES;  // R15
    const bool large = in_.module.version() >= Module::Version{8, 1} && in_.module.sm() >= 70;
    if (bytes > (large ? kMaxParamBytes : kMaxParamBytesOld))
      return "has " + std::to_string(in_.entry.param_bytes) +
             " bytes of parameters, which leaves no room for the launch's";
    for (const ptx::Variable& p : in_.entry.params)
      if (p.bytes == 0) return "has a parameter whose size is not known";
    if (!dynamic() && facts.static_shared_bytes + 2 * kSlotBytes > kMaxStaticSharedBytes)
      return "uses all of its shared memory";
    if (dynamic() && facts.reads_dynamic_smem_size)  // R33
      return "reads the size of its shared memory";
    return {};
  }

  std::uint64_t block_offset() const {
    constexpr std::uint64_t kAlign = SLUICE_PREEMPT_PARAMS_ALIGN;
    return (in_.entry.param_bytes + kAlign - 1) / kAlign * kAlign;
  }

  std::string edit_body() {
    const IndexNames names{in_.prefix, parameters_};
    for (const Statement& s : in_.entry.statements) {
      if (s.kind == StatementKind::kDirective && s.opcode == ".loc") {
        edits_.remove(s.range);  // R2: its labels must stay unique
        continue;
      }
      if (s.kind != StatementKind::kInstruction) continue;
      const std::string_view base = ptx::base_opcode(s.opcode);
      if (base == "ret" || base == "exit") {  // R17
        std::string guard;
        if (!s.guard.empty())
          guard = std::string(s.guard_negated ? "@!" : "@") + std::string(s.guard) + " ";
        edits_.replace(s.range, guard + out_.name("bra \t~TAIL;"));
        continue;
      }
      if (std::string why = replace_block_index(in_.module, s, names, edits_); !why.empty())
        return why;
    }
    return {};
  }

  void edit_header() {
    const Function& f = in_.entry;
    edits_.replace(f.name_range, std::string(f.name) + SLUICE_CLONE_SUFFIX);
    const std::string block = ".param .align " + std::to_string(SLUICE_PREEMPT_PARAMS_ALIGN) +
                              " .b8 " + parameters_ + "[" +
                              std::to_string(SLUICE_PREEMPT_PARAMS_BYTES) + "]";
    if (!f.params.empty()) {
      edits_.insert(f.params.back().range.end, std::string(",\n\t").append(block));
    } else if (f.has_param_list) {
      edits_.insert(f.params_range.begin, std::string("\n\t").append(block).append("\n"));
    } else {
      edits_.insert(f.name_range.end, std::string("(\n\t").append(block).append("\n)"));
    }
  }

  const PassInput& in_;
  Emitter out_;
  ptx::Edits edits_;
  std::string parameters_;
};

}  // namespace

Outcome run_plain(const PassInput& input) { return PlainPass(input).run(); }

}  // namespace sluice::passes
