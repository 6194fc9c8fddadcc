// SPDX-License-Identifier: Apache-2.0
// What a test and its fake worker (fake_worker.cc) say to each other through a slot's rings: one
// Command per submitted record, one Reply per completion. Test code only.
#pragma once

#include <cstdint>

namespace sluice::fake {

enum What : uint64_t {
  kExit,           // a: exit status
  kLease,          // a: bytes, b: Resource; replies {code, 0, bytes}
  kUnlease,        // a: bytes, b: Resource
  kExtent,         // a: bytes; replies {code, offset, bytes}
  kReturnExtent,   // a: offset, b: bytes
  kEndedWith,      // a: code; sends Ended and exits
  kEndedUnread,    // a: code; asks for a lease, sends Ended, and exits without reading the answer
  kHangUp,         // hangs up and stays; a != 0: sends Ended with that, and stays
  kGarbage,        // sends something that is no message
  kDeaf,           // ignores End from now on; replies
  kWriteHostPage,  // tries to map the host page writable; replies {1 if it could, 1 if mprotect
                   // could}
  kOpenFds,        // replies {descriptors that it should not have}
  kReport,         // a: launches, b: demand; writes them into the report and rings
  kError,   // a: sticky CUresult, b: launches in flight; writes them into the report and rings;
            // replies
  kGrant,   // replies {grant word}
  kPolls,   // replies {for how long it is to poll for calls, us}
  kRecord,  // a: which; a launch record that is new, done, and of a kernel of its own; replies
  kToken,   // a, b: a token, which the next commands are about
  kShare,   // a: bytes; replies {the token, which is this worker's from now on, descriptors}
  // a: how often; asks for what has the token, and reads nothing until sluiced has read all of it;
  // replies {answers, descriptors, answers with code 0}
  kOpenUnread,
  kRandom,  // a: seed, b: how many; sends any messages, reads of the answers what it likes; replies
            // {the token, 0} of some export of its own
};
struct Command {
  uint64_t what, a, b;
};
struct Reply {
  uint64_t a, b, c;
};

}  // namespace sluice::fake
