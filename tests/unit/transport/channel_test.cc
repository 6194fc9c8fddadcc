// SPDX-License-Identifier: Apache-2.0
// The errors of programs that cannot join a channel.
#include "guest-agent/transport/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "mediator/base/unix_socket.h"

namespace sluice::guest {
namespace {

// Whether the user nobody gets an error with `words`.
bool nobody_is_told(const std::string& path, const std::string& words) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    auto joined = Channel::join(path, "test");
    ::_exit(!joined && joined.error().message.find(words) != std::string::npos ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Channel, WhoMayNotJoinIsToldWhatToDo) {
  char name[] = "/tmp/sluice-join-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string folder = name, path = folder + "/agent.sock";
  ::chmod(name, 0755);
  EXPECT_TRUE(nobody_is_told(path, "is sluice-agent (in a VM) or sluiced running"));
  auto listener = listen_unix(path, SOCK_SEQPACKET, 0);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_TRUE(nobody_is_told(path, "adduser USER sluice"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::guest
