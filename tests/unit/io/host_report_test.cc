// SPDX-License-Identifier: Apache-2.0
// What sluiced makes of a spawner's Hello.
#include "mediator/io/host_report.h"

#include <gtest/gtest.h>

namespace sluice::io {
namespace {

using spawner_protocol::Packet, spawner_protocol::Wall;

TEST(HostReport, BeforeAHelloNothingIsSeen) {
  const HostReport none;
  EXPECT_FALSE(none.sees_xids());
  EXPECT_EQ(none.no_kernel_log, "not asked for");
}

TEST(HostReport, AHelloWithoutLinesIsAHostThatAllowsAll) {
  const HostReport report = HostReport::from(Packet{});
  EXPECT_TRUE(report.sees_xids());
  EXPECT_TRUE(report.missing_walls.empty() && report.missing_limits.empty());
  EXPECT_TRUE(report.no_code_cache.empty() && report.no_pressure.empty());
  for (size_t w = 0; w < static_cast<size_t>(Wall::kCount); ++w)
    EXPECT_FALSE(report.lacks(static_cast<Wall>(w)));
}

TEST(HostReport, HasEachLineInItsPlace) {
  Packet hello;
  hello.header.id = 3;
  hello.add("missing", "user: no CAP_SETUID");
  hello.add("missing", "landlock: the kernel has none");
  hello.add("no-limit", "memory: not delegated");
  hello.add("no-kernel-log", "log");
  hello.add("no-code-cache", "cache");
  hello.add("no-pressure", "pressure");
  const HostReport report = HostReport::from(hello);
  EXPECT_EQ(report.missing_walls,
            (std::vector<std::string>{"user: no CAP_SETUID", "landlock: the kernel has none"}));
  EXPECT_EQ(report.missing_limits, std::vector<std::string>{"memory: not delegated"});
  EXPECT_EQ(report.no_kernel_log, "log");
  EXPECT_EQ(report.no_code_cache, "cache");
  EXPECT_EQ(report.no_pressure, "pressure");
  EXPECT_EQ(report.ended_workers, 3u);
  EXPECT_FALSE(report.sees_xids());
}

// By its whole name: a reason that has another wall's name is not that wall's.
TEST(HostReport, LacksAWallByItsName) {
  Packet hello;
  hello.add("missing", "pids: user namespaces are off");
  const HostReport report = HostReport::from(hello);
  EXPECT_TRUE(report.lacks(Wall::kPids));
  EXPECT_FALSE(report.lacks(Wall::kUser));
}

}  // namespace
}  // namespace sluice::io
