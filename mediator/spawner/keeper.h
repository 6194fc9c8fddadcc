// SPDX-License-Identifier: Apache-2.0
// Keeper: the root process of the pair that sluice-spawner is. It was started by sluiced while that
// was still trusted, keeps the Setup of that moment, and starts a spawner (spawner.h) whenever
// sluiced asks for one: at first, and after a spawner has died. sluiced cannot do that itself once
// it has given up its privileges.
//
// One thread, blocking. It takes two messages from sluiced: one Setup, then Launch any number of
// times. Launch carries nothing, so an attacker who takes over sluiced gets a fresh spawner, and
// cannot choose what it starts. The keeper ends when sluiced closes the link or breaks the
// protocol.
#pragma once

#include <sys/types.h>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/spawner_protocol.h"

namespace sluice::spawner {

class Keeper {
 public:
  explicit Keeper(Fd link) : link_(std::move(link)) {}
  // Serves until sluiced has gone. The exit status of the program.
  int run();

 private:
  Result<void> serve();
  Result<void> launch();

  Fd link_;
  pid_t spawner_ = -1;
  spawner_protocol::Packet setup_;
};

}  // namespace sluice::spawner
