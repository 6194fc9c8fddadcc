// SPDX-License-Identifier: Apache-2.0
// SwitchRing: the context-switch log of an NVIDIA GPU on its way from the process that may read
// it to the one that needs it: records in a file in memory, which only the first can write.
//
//   0        +----------------------------------------------+
//            | header: put, known_ns, lost, failed          |
//   4096     +----------------------------------------------+
//            | records, a ring; number n at n % kRecords    |
//            +----------------------------------------------+
//
// The writer is the spawner's recorder (spawner/switch_recorder.h), the reader is sluiced, which
// trusts it; what is read is bounded all the same. Each is used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::gpu {

// A context starts on the compute engine, or ends there.
struct SwitchEvent {
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC; does not go backwards
  uint32_t pid = 0;      // as the first pid namespace has it
  uint32_t start = 0;    // 1: starts, 0: ends
};

struct SwitchRingPage;

class SwitchRingWriter {
 public:
  static Result<SwitchRingWriter> make();
  SwitchRingWriter(SwitchRingWriter&& other) noexcept
      : file_(std::move(other.file_)), page_(std::exchange(other.page_, nullptr)) {}
  SwitchRingWriter& operator=(SwitchRingWriter&&) = delete;
  ~SwitchRingWriter();

  // The file, for a reader: nobody but this object can write it, whoever has the descriptor.
  int fd() const { return file_.get(); }
  void add(const SwitchEvent& event);
  // Records are missing: dropped by the driver. Known to the reader with the next publish().
  void add_lost(uint64_t count);
  // All that happened until then has been added.
  void publish(uint64_t known_ns);
  // Nothing more will come.
  void fail(int error);

 private:
  SwitchRingWriter(Fd file, SwitchRingPage* page) : file_(std::move(file)), page_(page) {}
  Fd file_;
  SwitchRingPage* page_;
};

class SwitchRingReader {
 public:
  // Begins with what is added from now on.
  static Result<std::unique_ptr<SwitchRingReader>> open(int fd);
  ~SwitchRingReader();
  SwitchRingReader(const SwitchRingReader&) = delete;
  SwitchRingReader& operator=(const SwitchRingReader&) = delete;
  // Another one of the same file, from the same place on.
  Result<std::unique_ptr<SwitchRingReader>> again() const;

  struct News {
    uint64_t known_ns = 0;  // everything until then has been read; 0: nothing yet
    bool lost = false;      // records are missing before those that were appended
    int failed = 0;         // an errno: nothing more will come
  };
  News read(std::vector<SwitchEvent>& events);
  uint64_t known_ns() const;
  int failed() const;

 private:
  SwitchRingReader(Fd file, const SwitchRingPage* page) : file_(std::move(file)), page_(page) {}
  Fd file_;
  const SwitchRingPage* page_;
  uint64_t next_ = 0, lost_ = 0;
};

}  // namespace sluice::gpu
