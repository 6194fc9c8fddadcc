// SPDX-License-Identifier: Apache-2.0
// BackgroundFile: a file that sluiced's loop appends to and never waits for. What is appended lies
// in memory until a thread of the file's own has written it; a disk that is too slow for what comes
// is an error. Used from sluiced's one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice {

class BackgroundFile {
 public:
  explicit BackgroundFile(Fd file);
  // Waits until all is written, but no longer than kFinishMs; what is left is lost then.
  ~BackgroundFile();
  BackgroundFile(const BackgroundFile&) = delete;
  BackgroundFile& operator=(const BackgroundFile&) = delete;

  // An error of an earlier call's text, or that kMostWaitingBytes wait: this one is not taken.
  Result<void> append(std::string_view text);

  static constexpr size_t kMostWaitingBytes = 16u << 20;
  static constexpr uint64_t kFinishMs = 5000;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // with the thread
};

}  // namespace sluice
