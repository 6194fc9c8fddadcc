// SPDX-License-Identifier: Apache-2.0
// PTX text in, PTX text out: every entry keeps its original, byte for byte, and gets an evictable
// clone `<entry>__sluice` behind it where the passes can make one. Where the original has been
// loaded already, the text may have the clones alone (RewriteOptions).
//
// Pure and deterministic (same text, same bytes), so that a host can check what a guest did; any
// thread. Runs in the guest's libcuda when a program loads a module, in sluice-worker, and in
// sluice-ptx. It never makes a kernel wrong: what it does not understand stays opaque, with the
// reason.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/passes/clone/pass.h"
#include "mediator/base/result.h"

namespace sluice::passes {

// What the launcher and a person must know about one kernel.
struct KernelReport {
  std::string name;  // of the original entry; the clone's has SLUICE_CLONE_SUFFIX
  Tier tier = Tier::kOpaque;
  bool evictable = false;  // a clone exists
  // Why the next better form was not possible: why the kernel is opaque, or why it has no loop.
  // Empty for loops. The codes are listed in docs/internals/rewriter.md.
  std::string_view code;                 // static text: "cluster"
  std::string reason;                    // "uses thread-block clusters (line 12)"
  std::vector<std::string_view> passes;  // that changed it: {"unified", "lane-masks"}
  bool in_order = false;  // one ticket at a time, in order; its clone sees to that itself
  // Only where the grid is one row (y and z are 1): another grid's launches take the original.
  bool one_row = false;
  bool once = false;  // the clone has as many blocks as tasks are left, one task each
  // Beside its clone, a loop, stands one whose blocks run one task each (SLUICE_ONE_TASK_SUFFIX).
  bool one_task_too = false;
  // And one that is launched in windows of its grid (SLUICE_WINDOW_SUFFIX).
  bool windows_too = false;
  // Its clone is a loop, so that there may be these two; whether there are is known where they are
  // made (Forms).
  bool may_have_others = false;
  // Its author says where its blocks can leave (kernels/include/sluice/preempt.cuh), and they do:
  // as many blocks as tasks are not finished. Each thread saves this many bytes.
  bool resumable = false;
  std::uint32_t state_bytes = 0;
  // The author has said so, but it cannot be used: why. The kernel then never leaves in mid-work.
  std::string_view author_code;  // static text, listed in docs/internals/rewriter.md
  std::string author_reason;
  // Hands out its own work, from a counter in global memory or by the grid's size: persistent
  // already.
  bool persistent = false;
  // Parameter buffer of the original in bytes, and where in the clone's the block of
  // abi/preempt.h stands (8-byte aligned; 0 without a clone).
  std::uint64_t param_bytes_original = 0;
  std::uint64_t param_offset_of_block = 0;
  bool uses_dynamic_shared = false;  // refers to an extern shared array
  SlotPlace slot = SlotPlace::kNone;
};

struct Rewritten {
  std::string text;
  std::vector<KernelReport> kernels;  // all entries with a body, in the order of the text
};

// Which of a kernel's forms the text has.
enum class Forms {
  kAll,
  kFirst,   // the best one
  kOthers,  // those beside a loop (one_task_too, windows_too)
};

struct RewriteOptions {
  Forms forms = Forms::kAll;
  // Without the originals, and without the functions that only they need.
  bool alone = false;
  // Called after each pass with the kernel's name, the pass's name, and the clone as it stands or
  // the reason why its form is given up.
  std::function<void(std::string_view kernel, std::string_view pass, const std::string& clone,
                     const Finding& given_up)>
      after_each;
};

// An error only where the text cannot be cut into statements (guest's fault; line and column).
Result<Rewritten> rewrite_module(std::string text, const RewriteOptions& options = {});
Rewritten rewrite_module(const ptx::Module& module, const RewriteOptions& options = {});

}  // namespace sluice::passes
