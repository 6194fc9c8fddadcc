// SPDX-License-Identifier: Apache-2.0
// A sluiced that cannot start for a value of its configuration names the key and what to do.
#include <unistd.h>

#include <fstream>

#include "mediator/daemon/setup/folders.h"
#include "mediator/daemon/setup/state_file.h"
#include "mediator/softgpu/shared/shared_gpu.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

// Where nobody makes a folder, root neither.
const std::string kNowhere = "/proc/sluice-test";

class StartErrors : public DaemonTest {
 protected:
  // What it says, once it does not start.
  std::string why() {
    auto daemon = Daemon::make(io_, config_);
    return daemon ? "it has started" : daemon.error().message;
  }
};

TEST_F(StartErrors, TheRuntimeDirectory) {
  config_.runtime_dir = kNowhere;
  EXPECT_EQ(why(), "runtime_dir: mkdir " + kNowhere +
                       ": No such file or directory; set it to a folder that sluiced may make or "
                       "that is its own");
  config_.runtime_dir = dir_.path + "/file";
  std::ofstream(config_.runtime_dir).put('\n');
  EXPECT_EQ(why().find("runtime_dir: " + config_.runtime_dir + " is not a directory; "), 0u)
      << why();
}

TEST_F(StartErrors, TheStateDirectory) {
  Identity us;
  us.uid = ::geteuid();
  us.gid = ::getegid();
  config_.state_dir = kNowhere;
  const auto made = make_folders(config_, us);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message.find("state_dir: mkdir " + kNowhere + ": "), 0u)
      << made.error().message;
  // Without another user it is made when there is something to keep.
  EXPECT_TRUE(make_folders(config_, std::nullopt).ok());
  const auto kept = replace_state_file(kNowhere, kNowhere + "/groups", "");
  ASSERT_FALSE(kept.ok());
  EXPECT_EQ(kept.error().message.find("state_dir cannot be made: mkdir " + kNowhere + ": "), 0u)
      << kept.error().message;
}

// The mode was changed, and the software GPU of before is still there.
TEST_F(StartErrors, ASoftwareGpuOfAnotherMode) {
  ASSERT_TRUE(make_folders(config_, std::nullopt).ok());
  softgpu::Config gpu;
  gpu.mode = SLUICE_SOFT_TIMESLICE;
  gpu.gpu_file = config_.soft_gpu_path();
  gpu.memory_bytes = 64 << 20;
  ASSERT_TRUE(softgpu::SharedGpu::open(gpu).ok());
  config_.turns_by_priority = true;
  config_.soft_file = gpu.gpu_file;
  EXPECT_EQ(why(), "scheduler.turns: " + gpu.gpu_file +
                       " is a software GPU whose contexts take turns; remove it, and a new one is "
                       "made");
  // Its own, and nobody else's.
  config_.soft_file.clear();
  EXPECT_EQ(why(), "it has started");
  EXPECT_NE(::access(gpu.gpu_file.c_str(), F_OK), 0);
}

TEST_F(StartErrors, TheSpawner) {
  config_.spawner = "/nope";
  EXPECT_EQ(why(),
            "workers.spawner: /nope cannot be started: No such file or directory; set it to where "
            "sluice-spawner is installed");
  config_.spawner = dir_.path + "/text";
  std::ofstream(config_.spawner).put('\n');
  EXPECT_EQ(
      why().find("workers.spawner: " + config_.spawner + " cannot be started: Permission denied; "),
      0u)
      << why();
  config_.spawner = "/bin/true";
  EXPECT_EQ(why().find("workers.spawner: /bin/true ended at once"), 0u) << why();
}

// It starts: its vGPUs and their limits can be seen to.
TEST_F(StartErrors, TheWorker) {
  config_.worker = "/nope";
  log::init("test", log::Level::kWarning);
  ::testing::internal::CaptureStderr();
  start();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("no program of a guest can start: worker: execute /nope: No such file or "
                       "directory; set it to where sluice-worker is installed"),
            lines.npos)
      << lines;
}

// As on a host without an NVIDIA GPU and without the package of the software GPU.
TEST_F(StartErrors, TheSoftwareGpusLibrary) {
  config_.soft_library = "/nope/library.so";
  log::init("test", log::Level::kWarning);
  ::testing::internal::CaptureStderr();
  start();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("no program of a guest can start: device.soft_library: read "
                       "/nope/library.so: No such file or directory; there is no NVIDIA GPU that "
                       "can be used; the software GPU is in the package sluice-softgpu"),
            lines.npos)
      << lines;
}

// --check-config finds them before systemd takes sluiced for started.
TEST_F(StartErrors, NamesThatThisHostLacksAreFoundWithoutAStart) {
  const auto checked = [this] {
    auto good = Daemon::check(config_);
    return good ? std::string("good") : good.error().message;
  };
  EXPECT_EQ(checked(), "good");
  config_.policy = "nobodys";
  EXPECT_EQ(checked().find("scheduler.policy 'nobodys': there is no such policy; there are: wfq"),
            0u)
      << checked();
  config_.policy = "wfq";
  config_.socket_group = "nobodys";
  EXPECT_EQ(checked(), "vgpu.socket_group: there is no group 'nobodys'");
  config_.socket_group.clear();
  config_.socket_users = {"nobodys"};
  EXPECT_EQ(checked(), "vgpu.socket_users: there is no user 'nobodys'");
  config_.socket_users.clear();
  if (::geteuid() == 0) {
    config_.daemon_user = "nobodys";
    EXPECT_EQ(checked(), "daemon.user: there is no user 'nobodys'");
    config_.daemon_user.clear();
  }
  config_.slices = true;
  config_.spatial = true;
  EXPECT_NE(checked(), "good");
  EXPECT_NE(::access(config_.runtime_dir.c_str(), F_OK), 0) << "nothing was made";
}

TEST_F(StartErrors, TheAdminSocketAndTheTrace) {
  config_.admin_socket = dir_.path + "/none/socket";
  EXPECT_EQ(why().find("admin.socket: bind " + config_.admin_socket + ": "), 0u) << why();
  config_.trace = dir_.path + "/none/trace";
  EXPECT_EQ(why().find("scheduler.trace, or --trace: "), 0u) << why();
}

}  // namespace
}  // namespace sluice::test
