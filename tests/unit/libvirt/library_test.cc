// SPDX-License-Identifier: Apache-2.0
// What is said where libvirt is not reached: its own reason, and what to do about it.
#include "mediator/libvirt/api/library.h"

#include <gtest/gtest.h>

namespace sluice::libvirt {
namespace {

const char* reason = "";

TEST(Library, ARefusedConnectionSaysWhatToDo) {
  Library lib{};
  lib.virGetLastErrorMessage = [] { return reason; };
  const struct {
    const char *reason, *mend;
  } cases[] = {
      {"Failed to connect socket to '/run/x': Permission denied", "; 'adduser YOU libvirt'"},
      {"authentication unavailable: no polkit agent available to authenticate action "
       "'org.libvirt.unix.manage'",
       "; 'adduser YOU libvirt'"},
      {"access denied by policy: polkit: not authorized", "; 'adduser YOU libvirt'"},
      {"Failed to connect socket to '/run/x': No such file or directory",
       "; 'systemctl start libvirtd'"},
      {"Failed to connect socket to '/run/x': Connection refused", "; 'systemctl start libvirtd'"},
  };
  for (const auto& c : cases) {
    reason = c.reason;
    const std::string said = lib.not_connected("qemu:///system").message;
    EXPECT_TRUE(said.starts_with(std::string("connect to qemu:///system: ") + c.reason)) << said;
    EXPECT_NE(said.find(c.mend), said.npos) << said;
  }
}

}  // namespace
}  // namespace sluice::libvirt
