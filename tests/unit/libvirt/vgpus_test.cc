// SPDX-License-Identifier: Apache-2.0
// What the hook says where sluiced is not reached.
#include "mediator/libvirt/vgpus.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>

#include "mediator/base/listen_socket.h"

namespace sluice::libvirt {
namespace {

TEST(AdminVgpus, OnlyASluicedThatIsAwayIsToBeStarted) {
  char folder[] = "/tmp/sluice-vgpus-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/admin.sock";
  AdminVgpus vgpus(path, 1);
  auto away = vgpus.list();
  ASSERT_FALSE(away);
  EXPECT_NE(away.error().message.find("'systemctl start sluiced'"), std::string::npos);

  // It is there and says nothing.
  const auto socket = listen_at(path, {.type = SOCK_STREAM});
  ASSERT_TRUE(socket) << socket.error().message;
  auto silent = vgpus.list();
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().message,
            "sluiced has not answered within 1 s; 'systemctl status sluiced'");
  auto removed = vgpus.remove("a");
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().message.find("it may be done yet"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::libvirt
