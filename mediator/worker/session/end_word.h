// SPDX-License-Identifier: Apache-2.0
// EndWord: the word in a slot's staging memory that the GPU writes when what the program waits for
// has ended (abi/end_word.h), as the decoder follows it. The program sees the end there by itself,
// so no call waits for the engine's poll. Before the word is written the engine is polled rarely,
// since a fault writes none. Afterwards the next record comes first: the query that finds an end
// takes the driver more than a microsecond, for which a record would wait.
//
// Decoder. The program can write the word, too: it decides nothing but when to poll.
#pragma once

#include <cstdint>

#include "abi/end_word.h"
#include "mediator/ring/fence.h"

namespace sluice::worker {

class EndWord {
 public:
  // Polls of the ring between two polls of the engine: before the word is there, and behind it.
  static constexpr uint32_t kPollsBefore = 64, kPollsBehind = 32;

  EndWord(uint8_t* region, uint64_t staging_offset, uint64_t staging_bytes) {
    if (const uint64_t at = sluice_end_word_offset(staging_offset, staging_bytes); at != 0)
      word_ = reinterpret_cast<uint32_t*>(region + at);
  }

  // Its address, which the device has, too; 0: there is none.
  uint64_t address() const { return reinterpret_cast<uint64_t>(word_); }
  // The GPU is going to write this there.
  void expect(uint32_t guest_word) { expected_ = guest_word, polls_behind_ = 0; }
  // At this poll of the ring: the program will know of the end by the word, or has just done so.
  bool tells(uint32_t poll) {
    if (expected_ == 0) return false;
    if (load_shared(*word_) != expected_) return poll % kPollsBefore != 0;
    if (++polls_behind_ < kPollsBehind) return true;
    expected_ = 0;
    return false;
  }

 private:
  uint32_t* word_ = nullptr;
  uint32_t expected_ = 0, polls_behind_ = 0;  // 0: nothing is expected
};

}  // namespace sluice::worker
