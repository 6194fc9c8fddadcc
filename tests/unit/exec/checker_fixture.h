// SPDX-License-Identifier: Apache-2.0
// A kernel under the checker, in a few lines: for the tests of kernels/exec/checker.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/exec/checker/checker.h"
#include "tests/unit/exec/harness.h"

namespace sluice::exec {

// The line of `text` in which `part` stands first, from 1.
inline uint32_t line_of(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return 1 + static_cast<uint32_t>(
                 std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

class CheckerTest : public ExecTest {
 protected:
  // Runs the kernel on `memory` (parameter 0) with all checks.
  std::vector<Finding> check(const std::string& text, Dim3 grid, Dim3 block,
                             const std::string& checks = "all", uint32_t dynamic_shared = 0) {
    auto options = CheckOptions::parse(checks);
    EXPECT_TRUE(options) << options.error().message;
    checker_ =
        std::make_unique<Checker>(*options, [this](const Finding& f) { reported_.push_back(f); });
    environment_.checker = checker_.get();
    text_ = text;
    EXPECT_TRUE(load(text)) << error_;
    if (memory_.empty()) memory_.assign(4096, 0);
    const uint64_t base = reinterpret_cast<uint64_t>(memory_.data());
    if (map_.size() == 0) share(memory_);
    reported_.clear();
    checker_->on_allocate(base, memory_.size() * 4, 1, defined_);
    state_ = launch_interleaved(grid, block, parameters({base}), dynamic_shared);
    return checker_->findings();
  }

  // All blocks of the grid resident at once, in turns of some instructions: so races between blocks
  // are there to be seen whichever comes first, and blocks that wait for one another get on.
  RunState launch_interleaved(Dim3 grid, Dim3 block, const std::vector<std::byte>& bytes,
                              uint32_t dynamic_shared) {
    LaunchShape shape;
    shape.grid = grid;
    shape.block = block;
    shape.dynamic_shared_bytes = dynamic_shared;
    shape.grid_id = ++grid_id_;
    shape.cluster = cluster_;
    std::vector<std::unique_ptr<Block>> blocks;
    for (uint32_t k = 0; k < grid.count(); k += cluster_.x) {  // clusters of these tests: in x
      auto made = Block::make(image_, "k", shape, bytes, map_, environment_);
      if (!made) {
        ADD_FAILURE() << made.error().message;
        return RunState::kFault;
      }
      blocks.push_back(std::move(*made));
      blocks.back()->start({k % grid.x, k / grid.x % grid.y, k / grid.x / grid.y}, {0, 1});
    }
    for (int rounds = 0; !blocks.empty(); ++rounds) {
      if (rounds > 1'000'000) {
        ADD_FAILURE() << "the kernel does not end";
        return RunState::kYielded;
      }
      for (size_t k = 0; k < blocks.size();) {
        const RunResult run = blocks[k]->run(slice_);
        if (run.state == RunState::kFault) {
          fault_ = blocks[k]->fault();
          return RunState::kFault;
        }
        if (run.state == RunState::kDone)
          blocks.erase(blocks.begin() + static_cast<long>(k));
        else
          ++k;
      }
    }
    return RunState::kDone;
  }

  static std::string all(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& f : findings) text += f.describe() + "\n";
    return text;
  }

  // Exactly one finding, of that kind, between these two lines, in either order (the second empty:
  // nobody else).
  void expect_one(const std::vector<Finding>& findings, CheckKind kind, const std::string& at,
                  const std::string& other = "") {
    ASSERT_EQ(findings.size(), 1u) << all(findings);
    const Finding& f = findings[0];
    EXPECT_EQ(f.kind, kind) << f.describe();
    EXPECT_EQ(f.kernel, "k");
    uint32_t mine = f.party.line, theirs = f.has_other ? f.other.line : 0;
    const uint32_t a = line_of(text_, at), b = other.empty() ? 0 : line_of(text_, other);
    if (b != 0 && mine == b) std::swap(mine, theirs);
    EXPECT_EQ(mine, a) << f.describe();
    if (b != 0) {
      EXPECT_EQ(theirs, b) << f.describe();
    }
    EXPECT_EQ(reported_.size(), findings.size());
  }

  void expect_none(const std::vector<Finding>& findings) {
    EXPECT_EQ(state_, RunState::kDone) << fault_.describe();
    EXPECT_TRUE(findings.empty()) << all(findings);
  }

  std::unique_ptr<Checker> checker_;
  std::vector<Finding> reported_;
  std::vector<uint32_t> memory_;
  std::string text_;
  RunState state_ = RunState::kDone;
  bool defined_ = true;
  uint64_t grid_id_ = 0;
};

inline const std::string kShared = ".shared .align 16 .b8 sh[4096];\n";
inline const std::string kThread =
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, sh;\nshl.b32 %r4, %r1, 2;\n"
    "add.u32 %r5, %r3, %r4;\n"  // own word
    "add.u32 %r6, %r1, 1;\nmov.u32 %r7, %ntid.x;\nrem.u32 %r6, %r6, %r7;\nshl.b32 %r6, %r6, 2;\n"
    "add.u32 %r6, %r6, %r3;\n"                                 // the next thread's
    "cvt.u64.u32 %rd10, %r4;\nadd.s64 %rd10, %rd10, %rd0;\n";  // own word of global memory

}  // namespace sluice::exec
