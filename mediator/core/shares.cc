// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/shares.h"

#include <algorithm>
#include <utility>

namespace sluice::core {

const Shares::Share* Shares::add(const Token& token, Share share, uint64_t most_bytes) {
  if (shares_.size() >= kMost || bytes_ > most_bytes || share.bytes > most_bytes - bytes_)
    return nullptr;
  const auto [entry, added] = shares_.try_emplace(token, std::move(share));
  if (!added) return nullptr;
  bytes_ += entry->second.bytes;
  return &entry->second;
}

void Shares::erase(Entry entry) {
  bytes_ -= entry->second.bytes;
  if (entry->second.file) close_file_(std::move(entry->second.file));
  shares_.erase(entry);
}

const Shares::Share* Shares::open(const Token& token, Session session) {
  const auto entry = shares_.find(token);
  if (entry == shares_.end()) return nullptr;
  Share& share = entry->second;
  // A share that was given up can be opened by its importers only.
  if (share.given_up ? !share.importers.contains(session) : share.exporter == session)
    return nullptr;
  share.importers.insert(session);
  return &share;
}

Result<void> Shares::give_up(Entry entry, uint64_t bytes) {
  Share& share = entry->second;
  const Session exporter = share.exporter;
  if (share.importers.empty()) {
    erase(entry);
    return bytes == 0 ? Result<void>{} : ledger_.give_back(exporter, bytes);
  }
  share.given_up = true;
  share.payer = *share.importers.begin();
  if (bytes == 0) return {};
  // A worker may say more than it holds: then the payer is charged, and later given back, nothing.
  auto moved = ledger_.move(exporter, share.payer, bytes);
  if (moved) share.charged = bytes;
  return moved;
}

Result<void> Shares::give_up(const Token& token, Session session, uint64_t bytes) {
  const auto entry = shares_.find(token);
  if (entry != shares_.end() && entry->second.exporter == session && !entry->second.given_up)
    return give_up(entry, bytes);
  return bytes == 0 ? Result<void>{} : ledger_.give_back(session, bytes);
}

// True: it is gone.
bool Shares::close(Entry entry, Session session) {
  Share& share = entry->second;
  if (share.importers.erase(session) == 0 || !share.given_up) return false;
  const bool last = share.importers.empty();
  if (share.payer == session && share.charged != 0) {
    // A worker that released what is not its own holds less.
    share.charged = std::min(share.charged, ledger_.held_by_session(session));
    if (last)
      (void)ledger_.give_back(session, share.charged);
    else
      (void)ledger_.move(session, *share.importers.begin(), share.charged);
  }
  if (last)
    erase(entry);
  else
    share.payer = *share.importers.begin();
  return last;
}

void Shares::close(const Token& token, Session session) {
  if (const auto entry = shares_.find(token); entry != shares_.end()) (void)close(entry, session);
}

void Shares::session_ends(Session session) {
  for (auto it = shares_.begin(); it != shares_.end();) {
    const auto entry = it++;
    if (entry->second.exporter == session && !entry->second.given_up)
      (void)give_up(entry, std::min(entry->second.bytes, ledger_.held_by_session(session)));
    else
      (void)close(entry, session);
  }
}

}  // namespace sluice::core
