// SPDX-License-Identifier: Apache-2.0
// Waiting: a line on stderr that says what sluicectl waits for, where that takes longer than
// kSaidAfterSeconds. Scopes nest; the innermost counts, and each is said once.
//
// Only a program that called say_as() says anything: libvirt takes a hook's stderr for a reason.
// Scopes are of one thread. The lines are written by another one, which is never ended.
#pragma once

#include <string>

namespace sluice::cli {

// For the scopes in which libvirt is asked.
inline constexpr char kLibvirtAwaited[] = "libvirt to answer ('systemctl status libvirtd')";

class Waiting {
 public:
  // Before the first scope. `program` is a literal.
  static void say_as(const char* program);

  explicit Waiting(std::string what);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
};

}  // namespace sluice::cli
