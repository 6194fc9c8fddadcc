// SPDX-License-Identifier: Apache-2.0
// Shares: device memory that several programs of one vGPU have (cuIpcGetMemHandle and kin). sluiced
// has one for each vGPU. What a guest gets for a handle holds a Token, and a token finds nothing in
// the Shares of another vGPU.
//
//   added --the exporter frees it, or ends--> given up --its last importer closes it--> gone
//     |                                                                                  ^
//     +-------------------------- the same, while nobody has opened it ------------------+
//
// It is charged once: to its exporter, and when that has given it up to one of the importers. What
// is charged is a worker's word, and what it exports may stay when it has gone. So all of a vGPU's
// together hold no more than its memory limit, whatever of it is charged.
//
// Owned by a VgpuServer and its sessions, used from sluiced's one thread. No I/O; files are only
// kept here. The last close of one takes as long as its memory is large, so it is left to `close`.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "mediator/base/fd.h"
#include "mediator/core/quota.h"

namespace sluice::core {

class Shares {
 public:
  using Session = QuotaLedger::Session;
  using Token = std::array<uint8_t, 16>;
  // Each is a descriptor of sluiced on the software GPU. Fewer: programs that give each buffer to
  // each other by itself run out of them.
  static constexpr size_t kMost = 256;

  struct Share {
    Session exporter = 0;
    bool given_up = false;
    uint64_t bytes = 0;             // of the driver's memory
    std::array<char, 64> handle{};  // the driver's, which only workers read
    Fd file;                        // the software GPU's: where the memory lies
    std::set<Session> importers;
    Session payer = 0;     // if given up: the importer who is charged ...
    uint64_t charged = 0;  // ... so much
  };

  using Close = std::function<void(Fd)>;

  Shares(QuotaLedger& ledger, Close close) : ledger_(ledger), close_file_(std::move(close)) {}

  // Null: there are too many, or with it they hold more than `most_bytes`.
  const Share* add(const Token& token, Share share, uint64_t most_bytes);
  // What an honest vGPU has to be allowed: each share may be rounded up to whole pages.
  static uint64_t most_bytes(uint64_t memory_limit) {
    constexpr uint64_t kRounding = kMost * 2 * 4096;
    return memory_limit > UINT64_MAX - kRounding ? UINT64_MAX : memory_limit + kRounding;
  }
  // The session has it mapped from now on. Null: there is none, or it is the session's own.
  const Share* open(const Token& token, Session session);
  // The exporter has freed it and is charged for `bytes` of it until now. EINVAL as
  // QuotaLedger::give_back().
  Result<void> give_up(const Token& token, Session session, uint64_t bytes);
  void close(const Token& token, Session session);
  // To be called before the session leaves the ledger.
  void session_ends(Session session);

  size_t size() const { return shares_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  using Entry = std::map<Token, Share>::iterator;
  Result<void> give_up(Entry entry, uint64_t bytes);
  bool close(Entry entry, Session session);
  void erase(Entry entry);

  QuotaLedger& ledger_;
  Close close_file_;
  std::map<Token, Share> shares_;
  uint64_t bytes_ = 0;  // of all of them
};

}  // namespace sluice::core
