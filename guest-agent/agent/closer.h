// SPDX-License-Identifier: Apache-2.0
// Closer: closes programs' sockets, in which they may have left descriptors, without waiting. The
// last close of a socket with SO_LINGER takes as long as its owner likes, and the kernel closes
// what is under way in a socket with that. Owned by the agent, called from its thread; the closes
// happen on threads that outlive it if they hang.
#pragma once

#include <memory>

#include "mediator/base/fd.h"

namespace sluice::guest {

class Closer {
 public:
  Closer();
  ~Closer();
  // Never waits.
  void close(Fd socket);
  // Not closed yet.
  size_t open() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sluice::guest
