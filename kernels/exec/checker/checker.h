// SPDX-License-Identifier: Apache-2.0
// Checker: finds what a kernel does wrong and a GPU would not say: reads of memory that nobody has
// written, data races, barriers that only a part of a warp comes to, memory that is never freed,
// and who freed the memory that a fault names. docs/operating/checker.md says what each check sees
// and what not.
//
// Who owns it: the software GPU, one for the process, for as long as blocks run; an Environment
// hands it to the blocks (Environment::checker). Without one blocks run as if it did not exist.
// Threads: any; blocks report from the threads that run them, allocations from those that call.
// It changes nothing that a kernel computes. It does not stop a launch by itself: with
// CheckOptions::error a block that has a finding ends with a fault.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kernels/exec/checker/shadow.h"
#include "kernels/exec/memory/fault.h"
#include "mediator/base/result.h"

namespace sluice::exec {

struct CheckOptions {
  bool memory = false;   // who freed, how far outside; allocations never freed
  bool race = false;     // shared and global memory
  bool uninit = false;   // reads of bytes that nobody has written
  bool barrier = false;  // divergent, mismatched, abandoned
  bool error = false;    // a finding makes the launch fail
  uint32_t limit = 100;  // findings reported one by one; the rest is counted

  bool any() const { return memory || race || uninit || barrier; }
  // "memory,race,uninit,barrier,error", any part of it; "all" is the four checks.
  static Result<CheckOptions> parse(std::string_view text);
};

enum class CheckKind : uint8_t { kMemory, kLeak, kRace, kUninit, kBarrier };
const char* to_string(CheckKind kind);

// A thread and what it did; also the second one of a race or barrier.
struct CheckParty {
  uint32_t line = 0;   // in the PTX text; 0: not known
  std::string source;  // "reduce.cu:41" where the text has .loc, else empty
  Dim3 block, thread;
  std::string what;  // "writes", "is at barrier 0"
};

struct Finding {
  CheckKind kind = CheckKind::kMemory;
  std::string kernel;  // empty: not of a kernel (leaks)
  CheckParty party;
  bool has_other = false;
  CheckParty other;
  std::string space;  // "global", "shared", "local", or empty
  uint64_t address = 0;
  uint64_t bytes = 0;
  std::string detail;
  uint64_t count = 1;  // times seen

  std::string describe() const;  // one line
  std::string json() const;      // one line
};

class Checker {
 public:
  // `tell`: called with each new finding, one at a time. Empty: nobody.
  explicit Checker(const CheckOptions& options, std::function<void(const Finding&)> tell = {});
  ~Checker();

  const CheckOptions& options() const { return options_; }

  // Device memory. `call`: the number of the call that did it, for people (0: none). `defined`: its
  // bytes count as written (module variables).
  void on_allocate(uint64_t base, uint64_t bytes, uint64_t call, bool defined = false);
  void on_free(uint64_t base, uint64_t call);
  // It is a module's variable: written by loading it, freed with the module, never a leak.
  void on_variable(uint64_t base);
  // The host or a copy has written there; on_copy: what was not written stays so.
  void on_write(uint64_t address, uint64_t bytes);
  void on_copy(uint64_t to, uint64_t from, uint64_t bytes);
  // Everything allocated and not freed is reported as leaked: at the end of a context or process.
  // Only what `wanted` says (by base); all where it is empty.
  void report_leaks(const std::function<bool(uint64_t base)>& wanted = {});

  // What is known of a bad address: "16 bytes past the end of 256 bytes at 0x... (call 12)",
  // "inside 256 bytes that call 17 freed". Empty: nothing.
  std::string explain_address(uint64_t address, uint64_t bytes) const;

  // Adds one or counts it again. True: it is new.
  bool report(Finding finding);
  std::vector<Finding> findings() const;
  uint64_t total() const;       // with repetitions
  std::string summary() const;  // one line; empty where nothing was found

  detail::GlobalShadow& shadow() { return shadow_; }

 private:
  struct Freed {
    uint64_t base, bytes, allocated_by, freed_by;
  };
  struct Known {
    uint64_t bytes, call;
    bool variable = false;
  };

  const CheckOptions options_;
  const std::function<void(const Finding&)> tell_;
  detail::GlobalShadow shadow_;

  mutable std::mutex mutex_;
  std::map<uint64_t, Known> allocations_;  // by base
  std::deque<Freed> freed_;                // newest first
  std::vector<Finding> findings_;
  std::map<std::tuple<CheckKind, std::string, uint32_t, uint32_t, std::string>, size_t> index_;
  uint64_t suppressed_ = 0;
};

// Sends findings to standard error and, where `log_path` is not empty, one JSON object per line to
// that file. The file is opened at once.
Result<std::function<void(const Finding&)>> make_finding_output(const std::string& log_path);

}  // namespace sluice::exec
