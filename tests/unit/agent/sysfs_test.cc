// SPDX-License-Identifier: Apache-2.0
// The device without VFIO, made of files: no interrupt arrives, and all is done by polling. A real
// guest without an IOMMU: tests/system/guests/cases_guest.py.
#include "guest-agent/agent/sysfs_device.h"

#include <fcntl.h>

#include <fstream>
#include <new>

#include "guest-agent/agent/doctor.h"
#include "tests/unit/agent/fixture.h"

namespace sluice::guest {
namespace {

// The same device as sysfs shows it, in files.
class SysfsAgentTest : public AgentTest {
 protected:
  static constexpr char kAddress[] = "0000:01:01.0";

  void open_device() override {
    sysfs_ = folder_ + "/sys";
    std::string path = sysfs_;
    ::mkdir(path.c_str(), 0755);
    for (const char* part : {"/bus", "/pci", "/devices", "/0000:01:01.0"})
      ::mkdir((path += part).c_str(), 0755);
    files_ = path;
    std::ofstream(files_ + "/vendor") << "0x1af4\n";
    std::ofstream(files_ + "/device") << "0x1110\n";
    std::ofstream(files_ + "/enable") << "0\n";
    // BAR0 begins in the middle of its page.
    std::ofstream(files_ + "/resource") << "0x00000000fe001200 0x00000000fe0012ff 0x40200\n";
    std::ofstream(files_ + "/resource0");
    std::ofstream(files_ + "/resource2");
    ASSERT_EQ(::truncate((files_ + "/resource0").c_str(), 4096), 0);
    ASSERT_EQ(::truncate((files_ + "/resource2").c_str(), kRegion), 0);
    device_.address = kAddress;
    auto opened = open_by_sysfs(device_, sysfs_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Fd host(::open((files_ + "/resource2").c_str(), O_RDWR | O_CLOEXEC));
    void* at = ::mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_SHARED, host.get(), 0);
    ASSERT_NE(at, MAP_FAILED);
    region_ = static_cast<std::byte*>(at);
  }
  Bell bell_of_agent() override { return {}; }  // no interrupt arrives
  void TearDown() override {
    AgentTest::TearDown();
    [[maybe_unused]] int rc = ::system(("rm -r " + folder_).c_str());
  }

  std::string sysfs_, files_;
};

TEST_F(SysfsAgentTest, TheDoctorComparesReleases) {
  DoctorOptions o;
  o.socket = path();
  o.sysfs = sysfs_;
  o.driver = "libnone-of-this-name.so.1";
  const auto host = [&] { return examine(o)[2]; };
  std::strcpy(header().host_release, SLUICE_VERSION);
  header().oldest = SLUICE_CHANNEL_OLDEST;
  EXPECT_EQ(host().name, "host");
  EXPECT_EQ(host().state, Finding::State::kRight) << host().fact;
  EXPECT_EQ(host().fact.find("which works"), std::string::npos) << host().fact;
  std::strcpy(header().host_release, "9.9");
  header().version = SLUICE_CHANNEL_VERSION + 1;
  EXPECT_EQ(host().state, Finding::State::kRight) << host().fact;
  EXPECT_NE(host().fact.find("release 9.9"), std::string::npos) << host().fact;
  EXPECT_NE(host().fact.find("which works"), std::string::npos) << host().fact;
  header().oldest = SLUICE_CHANNEL_VERSION + 1;
  EXPECT_EQ(host().state, Finding::State::kWrong);
  EXPECT_NE(host().mend.find("sluice-guest-agent"), std::string::npos) << host().mend;
  header().version = header().oldest = SLUICE_CHANNEL_OLDEST - 1;
  EXPECT_NE(host().mend.find("on the host"), std::string::npos) << host().mend;
  // Unreadable, as under VFIO: the agent that answers has checked it.
  header().magic = ~uint64_t{0};
  EXPECT_EQ(host().state, Finding::State::kRight);
  EXPECT_NE(host().fact.find("checked by the agent"), std::string::npos) << host().fact;
  o.socket = "/no/such/socket";
  EXPECT_EQ(host().state, Finding::State::kSkipped);
}

TEST_F(SysfsAgentTest, ProgramsRingAndPollWithoutInterrupts) {
  std::string enabled;
  std::ifstream(files_ + "/enable") >> enabled;
  EXPECT_EQ(enabled, "1");
  EXPECT_EQ(device_.transport, Transport::kSysfs);
  auto program = join("p");
  opened(receive(SLUICE_CONTROL_OPEN).request, 2, 99);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  Channel& channel = *program->channel;
  channel.bell().ring();
  uint32_t rung = 0;
  std::ifstream registers(files_ + "/resource0", std::ios::binary);
  registers.seekg(0x200 + SLUICE_IVSHMEM_DOORBELL);
  registers.read(reinterpret_cast<char*>(&rung), sizeof rung);
  EXPECT_EQ(rung, 3u) << "at BAR0's own place in its page";
  region_[kRegion - 1] = std::byte{7};
  EXPECT_EQ(channel.region()[kRegion - 1], std::byte{7});
  // Nothing rings: a wait is a pause, and still sees the end of the agent.
  channel.wait(60'000'000'000);
  EXPECT_FALSE(channel.hung_up());
  program->channel.reset();
  EXPECT_EQ(receive(SLUICE_CONTROL_CLOSE).slot, 2u);
}

TEST_F(SysfsAgentTest, TheEndOfTheVgpuIsSeenWithoutAnInterrupt) {
  header().state = SLUICE_CHANNEL_CLOSED;
  EXPECT_TRUE(eventually([&] { return end_ == static_cast<int>(DeviceProblem::kRefused); }));
}

TEST_F(SysfsAgentTest, TheDeviceIsBusyUntilTheLastProgramOfAnAgentHasGone) {
  const auto second = [&] { return open_vgpu_device(kAddress, Transport::kSysfs, sysfs_); };
  auto busy = second();
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, static_cast<int>(DeviceProblem::kBusy));
  auto program = join("p");
  opened(receive(SLUICE_CONTROL_OPEN).request, 0, 5);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  // The agent ends; its program has the region mapped.
  stop_agent();
  device_.~VgpuDevice();
  new (&device_) VgpuDevice;
  ASSERT_FALSE(second().ok());
  EXPECT_TRUE(program->channel->poll_hang_up());
  program->channel->detach({});
  auto opened = second();
  EXPECT_TRUE(opened.ok()) << opened.error().message;
}

TEST_F(SysfsAgentTest, AnotherDriversDeviceIsLeftAlone) {
  ASSERT_EQ(::symlink("/sys/bus/pci/drivers/uio_pci_generic", (files_ + "/driver").c_str()), 0);
  auto taken = open_vgpu_device(kAddress, Transport::kSysfs, sysfs_);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, static_cast<int>(DeviceProblem::kBusy));
  EXPECT_NE(taken.error().message.find("uio_pci_generic"), std::string::npos);
}

}  // namespace
}  // namespace sluice::guest
