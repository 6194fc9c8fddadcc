// SPDX-License-Identifier: Apache-2.0
// FdStore: what outlives this process: parcels of text and descriptors, each with a name, in the
// store that systemd keeps for a service (FileDescriptorStoreMax=, sd_notify(3)). Owned by the
// Daemon, used from sluiced's one thread; nothing but `ready` blocks.
//
// systemd keeps one descriptor for each parcel, a socket in whose queue the parcel lies. Its text
// and descriptors are therefore put and taken as one, and systemd counts one descriptor.
//
//   put      message (text, descriptors) -> socket pair; the receiving end -> systemd
//   restart  systemd -> LISTEN_FDS of the new process
//   take     the message is peeked at, so that the next process finds it again
//
// Without systemd, or with a unit that stores nothing, `available` is false and puts do nothing.
// What is stored is trusted as our own memory is: only the service's main process can store it.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::io {

class FdStore {
 public:
  // Of one message (the kernel's SCM_MAX_FD), and of its text.
  static constexpr size_t kMaxFds = 253, kMaxText = 16384;
  struct Parcel {
    std::string text;
    std::vector<Fd> fds;
  };

  FdStore() = default;  // not available
  // `notify`: systemd's socket. `at_start`: what it has handed over, by name.
  FdStore(std::string notify, std::map<std::string, Fd> at_start)
      : notify_(std::move(notify)), at_start_(std::move(at_start)) {}
  // Takes what systemd has handed to this process, and its variables out of the environment. Before
  // a thread or a child is started. Not available without NOTIFY_SOCKET, even where something was
  // handed over.
  static FdStore from_environment();

  bool available() const { return !notify_.empty(); }
  // Tells systemd that the service has started (Type=notify): what waits for it begins. Waits for
  // systemd, which otherwise ends the service after a time.
  Result<void> ready() const;
  // In place of what has that name. EAGAIN: systemd is busy; try again later.
  Result<void> put(const std::string& name, const std::string& text, std::span<const int> fds);
  Result<void> remove(const std::string& name);
  // The parcels that were there at the start, once. What cannot be read is left out.
  std::map<std::string, Parcel> take();

 private:
  Result<void> notify(const std::string& text, int fd, int wait_s) const;

  std::string notify_;                  // systemd's socket; empty: there is none
  std::map<std::string, Fd> at_start_;  // by name
};

}  // namespace sluice::io
