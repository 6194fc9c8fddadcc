// SPDX-License-Identifier: Apache-2.0
// The host's doctor: a host made of files on which nothing is wrong, and then one problem at a
// time. Each is found by its check, and says what to do. sluiced and libvirt: tests/system.
#include "mediator/cli/doctor/doctor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <filesystem>
#include <fstream>

#include "mediator/base/unix_socket.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr char kUuid[] = "c7a5fdbd-edaf-9455-926a-d65c16db1809";

std::string domain(const std::string& devices, const std::string& more = "") {
  return "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
         "<name>vm1</name>" +
         more +
         "<devices><shmem name='vgpu0'>"
         "<model type='ivshmem-doorbell'/></shmem>" +
         devices + "</devices></domain>";
}
constexpr char kIommu[] = "<iommu model='intel'><driver intremap='on'/></iommu>";
constexpr char kPort[] =
    "<controller type='pci' model='pcie-root-port'><alias name='ua-sluice'/></controller>";

// An account that has no part in any file of the host: the test runs as another user.
constexpr char kPasswd[] = "root:x:0:0::/root:/bin/sh\nlibvirt-qemu:x:64055:994::/:/bin/false\n";

class HostDoctor : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/sluice-doctor-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    root_ = folder;
    ::chmod(folder, 0755);
    file("/etc/passwd", kPasswd);
    file("/etc/group", "sluice:x:" + std::to_string(::getgid()) + ":\nkvm:x:106:libvirt-qemu\n");
    file("/dev/kvm", "", 0666);
    file("/dev/kmsg", "");
    fs::create_directories(root_ + "/dev/shm");
    file("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\nHugePages_Total: 0\n");
    file("/proc/77/cmdline", std::string("/usr/libexec/sluice/sluice-libvirt-events\0-x\0", 44));
    file("/proc/99/cgroup", "0::/system.slice/sluiced.service\n");
    file("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
    file("/sys/fs/cgroup/system.slice/sluiced.service/cgroup.controllers", "memory pids\n");
    file("/sys/module/apparmor/parameters/enabled", "Y\n");
    file("/etc/libvirt/hooks/qemu.d/sluice", "#!/bin/sh\n", 0755);
    sockets("/run/sluice/admin.sock", 0660);
    sockets("/run/sluice/vgpu/vm1.sock", 0666);
    facts_.files = HostFiles(root_);
    facts_.version = "0.1.0";
    facts_.info = json::parse(R"({"version": "0.1.0", "pid": 99, "policy": "wfq",
        "runtime_dir": "/run/sluice", "sharing": "turns", "device": {"kind": "soft"},
        "workers": {"missing_walls": []},
        "loop": {"priority": "real time", "real_time_refused": ""},
        "vgpu_defaults": {"region_bytes": 268435456}})");
    facts_.vgpus = json::parse(R"([{"name": "vm1", "socket": "/run/sluice/vgpu/vm1.sock"}])");
    facts_.shown["vm1"] = json::parse(
        R"({"name": "vm1", "state": "connected", "agent": {"epoch": 5, "release": "0.1.0",
            "silent": false}})");
    facts_.domains = std::vector<libvirt::ListedDomain>{{"vm1", kUuid, "running", domain(kIommu)}};
  }
  void TearDown() override { fs::remove_all(root_); }

  void file(const std::string& path, const std::string& text, mode_t mode = 0644) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    ::chmod((root_ + path).c_str(), mode);
  }
  void sockets(const std::string& path, unsigned mode) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    auto listener = listen_unix(root_ + path, SOCK_STREAM, mode);
    ASSERT_TRUE(listener) << listener.error().message;
  }
  void answer(const char* name, json::value value) {
    facts_.info->get_object()[name] = std::move(value);
  }
  void gpu() {
    file("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    file("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  }
  void driver(const std::string& module, const std::string& library) {
    gpu();
    file("/sys/module/nvidia/version", module + "\n");
    file("/dev/nvidiactl", "");
    fs::create_directories(root_ + "/usr/lib/x86_64-linux-gnu");
    fs::create_symlink("libcuda.so." + library, root_ + "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  }
  Finding found(const std::string& name) {
    for (const Finding& f : examine_host(facts_))
      if (f.name == name) return f;
    ADD_FAILURE() << "no check " << name;
    return {};
  }
  // Only that check is wrong, with these words in fact and mend.
  void expect_wrong(const std::string& name, const std::string& fact, const std::string& mend) {
    for (const Finding& f : examine_host(facts_)) {
      if (f.name == name) {
        EXPECT_EQ(f.state, Finding::State::kWrong) << f.fact;
        EXPECT_NE(f.fact.find(fact), std::string::npos) << f.fact;
        EXPECT_NE(f.mend.find(mend), std::string::npos) << f.mend;
        EXPECT_FALSE(f.mend.empty()) << name;
      } else {
        EXPECT_NE(f.state, Finding::State::kWrong) << f.name << ": " << f.fact;
      }
    }
  }

  std::string root_;
  HostFacts facts_;
};

TEST_F(HostDoctor, NothingIsWrongOnAHostThatWorks) {
  const auto findings = examine_host(facts_);
  EXPECT_TRUE(all_right(findings)) << as_text(findings);
  for (const Finding& f : findings) EXPECT_TRUE(f.mend.empty() && !f.fact.empty()) << f.name;
}

TEST_F(HostDoctor, SluicedIsMissing) {
  facts_.info = facts_.vgpus = Result<json::value>(Error{ENOENT, "connect: no such file"});
  facts_.shown.clear();
  expect_wrong("sluiced", "no such file", "systemctl start sluiced");
  EXPECT_EQ(found("version").state, Finding::State::kSkipped);
  facts_.info = facts_.vgpus = Result<json::value>(Error{EACCES, "connect: permission denied"});
  expect_wrong("sluiced", "permission", "adduser YOU sluice");
  facts_.info = facts_.vgpus = Result<json::value>(Error{ETIMEDOUT, "no answer in time"});
  expect_wrong("sluiced", "does not answer", "restart sluiced");
}

TEST_F(HostDoctor, AnUpgradeWaitsForPrograms) {
  answer("version", "0.0.9");
  answer("ends_when_idle", true);
  const Finding f = found("version");
  EXPECT_EQ(f.state, Finding::State::kRight) << f.fact;
  EXPECT_NE(f.fact.find("as soon as no program uses the GPU"), std::string::npos) << f.fact;
}

TEST_F(HostDoctor, VersionsDiffer) {
  answer("version", "0.0.9");
  expect_wrong("version", "sluiced is 0.0.9, sluicectl is 0.1.0", "restart sluiced");
}

TEST_F(HostDoctor, SocketsHaveTheWrongRights) {
  ::chmod((root_ + "/run/sluice/admin.sock").c_str(), 0666);
  expect_wrong("admin-socket", "everybody", "0660");
  ::chmod((root_ + "/run/sluice/admin.sock").c_str(), 0600);
  expect_wrong("admin-socket", "group sluice may not", "0660");
  ::chmod((root_ + "/run/sluice/admin.sock").c_str(), 0660);
  ::chmod((root_ + "/run/sluice/vgpu/vm1.sock").c_str(), 0660);
  expect_wrong("vgpu-sockets", "user libvirt-qemu may not connect", "vgpu.socket_group");
  ::chmod((root_ + "/run/sluice/vgpu/vm1.sock").c_str(), 0666);
  ::chmod((root_ + "/run/sluice/vgpu").c_str(), 0700);
  expect_wrong("vgpu-sockets", "user libvirt-qemu may not connect", "vgpu.socket_group");
  ::chmod((root_ + "/run/sluice/vgpu").c_str(), 0755);
  fs::remove(root_ + "/run/sluice/vgpu/vm1.sock");
  expect_wrong("vgpu-sockets", "has no socket", "sluicectl delete vm1");
}

TEST_F(HostDoctor, TheGroupOfASocketCounts) {
  ::chmod((root_ + "/run/sluice/vgpu/vm1.sock").c_str(), 0660);
  file("/etc/passwd", "libvirt-qemu:x:64055:" + std::to_string(::getgid()) + "::/:/bin/false\n");
  EXPECT_EQ(found("vgpu-sockets").state, Finding::State::kRight) << found("vgpu-sockets").fact;
}

TEST_F(HostDoctor, TheGpuHasNoDriver) {
  gpu();
  expect_wrong("device", "0000:01:00.0, but NVIDIA's kernel module", "modprobe nvidia");
}

TEST_F(HostDoctor, TheGuestsPackageHidesTheDriver) {
  driver("550.54", "550.54");
  answer("device", {{"kind", "nvidia"}});
  file("/etc/ld.so.conf.d/00-sluice-guest.conf", "/usr/lib/x86_64-linux-gnu/sluice-guest\n");
  expect_wrong("device", "guest's package is installed here", "apt remove sluice-guest-agent");
}

TEST_F(HostDoctor, TheDriverIsWrong) {
  driver("550.54", "560.10");
  answer("device", {{"kind", "nvidia"}});
  expect_wrong("device", "module is 550.54, libcuda.so.1 is 560.10", "restart the host");
  fs::remove(root_ + "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  expect_wrong("device", "no libcuda.so.1", "libcuda1");
}

TEST_F(HostDoctor, TheGpuIsNotUsed) {
  driver("550.54", "550.54");
  expect_wrong("device", "uses the software GPU", "device.kind");
  answer("device", {{"kind", "nvidia"}});
  EXPECT_EQ(found("device").fact, "NVIDIA's, driver 550.54");
  fs::remove(root_ + "/dev/nvidiactl");
  expect_wrong("device", "/dev/nvidiactl", "nvidia-smi");
}

TEST_F(HostDoctor, TheGpuIsLost) {
  driver("550.54", "550.54");
  answer("device", {{"kind", "nvidia"}});
  const std::string lost =
      "3,8,90,-;NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen "
      "off "
      "the bus.\n SUBSYSTEM=pci\n";
  const std::string begins =
      "6,7,80,-;nvidia-nvlink: Nvlink Core is being initialized, major device number 245\n";
  const std::string loaded = "4,9,82,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54\n";
  file("/dev/kmsg", begins + loaded + lost);
  expect_wrong("device", "has fallen off the bus (Xid 79)", "restart the host");
  // Found while the module loads: without an Xid, in one record, and before the module says so.
  file("/dev/kmsg", begins +
                        "3,8,81,-;NVRM: The NVIDIA GPU 0000:01:00.0\\x0aNVRM: (PCI ID: 10de:2330) "
                        "installed in this system has\\x0aNVRM: fallen off the bus and is not "
                        "responding to commands.\n" +
                        loaded);
  expect_wrong("device", "has fallen off the bus (Xid 79)", "restart the host");
  for (const std::string& back :
       {begins + loaded,
        std::string("6,9,91,-;nvidia 0000:01:00.0: enabling device (0000 -> 0002)\n")}) {
    file("/dev/kmsg", lost + back);
    EXPECT_EQ(found("device").fact, "NVIDIA's, driver 550.54") << back;
  }
  // A program's line, and another fault.
  file("/dev/kmsg", "11,8,90,-;NVRM: GPU has fallen off the bus.\n");
  EXPECT_EQ(found("device").state, Finding::State::kRight);
  file("/dev/kmsg", "3,8,90,-;NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=a, MMU Fault\n");
  EXPECT_EQ(found("device").state, Finding::State::kRight);
}

TEST_F(HostDoctor, MpsIsMissingOrTooMuch) {
  driver("550.54", "550.54");
  answer("device", {{"kind", "nvidia"}});
  answer("sharing", "sms");
  expect_wrong("mps", "needs MPS", "systemctl enable --now sluice-mps");
  file("/proc/12/cmdline", "nvidia-cuda-mps-control");
  EXPECT_EQ(found("mps").fact, "runs");
  answer("sharing", "turns");
  expect_wrong("mps", "can end the others", "echo quit");
}

TEST_F(HostDoctor, CgroupsAreOldOrNotDelegated) {
  file("/sys/fs/cgroup/system.slice/sluiced.service/cgroup.controllers", "pids\n");
  expect_wrong("cgroup", "controller memory is not delegated", "Delegate=yes");
  file("/sys/fs/cgroup/system.slice/sluiced.service/cgroup.controllers", "memory pids\n");
  answer("workers", {{"missing_walls", json::array()}, {"missing_limits", {"cpu: not there"}}});
  expect_wrong("cgroup", "workers have no limit: cpu: not there", "DelegateSubgroup");
  fs::remove(root_ + "/sys/fs/cgroup/cgroup.controllers");
  expect_wrong("cgroup", "no cgroup v2", "unified_cgroup_hierarchy");
}

TEST_F(HostDoctor, AWallIsMissing) {
  answer("workers", {{"missing_walls", {"cgroup: read-only"}}});
  expect_wrong("walls", "cgroup: read-only", "workers.md");
}

TEST_F(HostDoctor, RealTimeIsRefused) {
  const auto loop = [this](const char* priority, const char* refused) {
    answer("loop", {{"priority", priority}, {"real_time_refused", refused}});
  };
  loop("nice", "real-time scheduling: Operation not permitted");
  expect_wrong("real-time", "by nice priority: real-time scheduling: Operation", "CAP_SYS_NICE");
  file("/proc/99/status", "Name:\tsluiced\nSeccomp:\t2\nSeccomp_filters:\t1\n");
  expect_wrong("real-time", "by its unit", "RestrictRealtime=no");
  answer("loop", {{"priority", "nice"},
                  {"real_time_refused",
                   "real-time scheduling, which was spent: Operation not "
                   "permitted"},
                  {"real_time_spent", 1}});
  expect_wrong("real-time", "which was spent", "LimitRTPRIO=1");
  for (const char* priority : {"nice", "spent"}) {
    loop(priority, "");
    EXPECT_EQ(found("real-time").state, Finding::State::kRight);
  }
  answer("loop", {{"priority", "nice"}});  // of an older sluiced
  EXPECT_EQ(found("real-time").state, Finding::State::kSkipped);
}

TEST_F(HostDoctor, KvmIsMissingOrForbidden) {
  ::chmod((root_ + "/dev/kvm").c_str(), 0660);
  expect_wrong("kvm", "user libvirt-qemu may not use /dev/kvm", "adduser libvirt-qemu kvm");
  fs::remove(root_ + "/dev/kvm");
  expect_wrong("kvm", "shows no virtualisation", "nested");
  file("/proc/cpuinfo", "processor: 0\nflags\t\t: fpu vmx sse\n");
  expect_wrong("kvm", "no /dev/kvm", "modprobe kvm_intel");
  file("/proc/cpuinfo", "processor: 0\nflags\t\t: fpu sse svm");
  expect_wrong("kvm", "no /dev/kvm", "modprobe kvm_amd");
}

TEST_F(HostDoctor, MemoryIsShort) {
  file("/proc/meminfo", "MemAvailable: 1000 kB\n");
  expect_wrong("memory", "256 MiB", "vgpu.region");
}

TEST_F(HostDoctor, SharedMemoryIsMissing) {
  fs::remove(root_ + "/dev/shm");
  expect_wrong("shm", "/dev/shm is not there", "mount");
}

TEST_F(HostDoctor, TheSoftwareGpuDoesNotFit) {
  answer("device", {{"kind", "soft"}, {"soft_gpu_file", "/run/sluice/softgpu"}});
  file("/run/sluice/softgpu", "");
  const uint64_t free = *facts_.files.free_bytes("/run/sluice/softgpu");
  if (::truncate((root_ + "/run/sluice/softgpu").c_str(), static_cast<off_t>(free + (1ull << 40))))
    GTEST_SKIP() << "no sparse file of that size here";
  expect_wrong("shm", "software GPU may grow", "soft_memory");
}

TEST_F(HostDoctor, LibvirtIsNotInstalledOrDoesNotAnswer) {
  facts_.domains = Error{EIO, "connect to qemu:///system: refused"};
  expect_wrong("libvirtd", "refused", "systemctl start libvirtd");
  facts_.domains = Error{ENOENT, "libvirt is not installed"};
  fs::remove(root_ + "/etc/libvirt/hooks/qemu.d/sluice");
  fs::remove(root_ + "/proc/77/cmdline");
  EXPECT_TRUE(all_right(examine_host(facts_))) << as_text(examine_host(facts_));
}

TEST_F(HostDoctor, KernelsReachTheMemoryOfTheirWorker) {
  EXPECT_EQ(found("hmm").state, Finding::State::kRight);
  const std::string parameter = "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm";
  file(parameter, "N\n");
  EXPECT_EQ(found("hmm").state, Finding::State::kRight) << "the closed modules have none";
  file("/proc/driver/nvidia/version",
       "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159\n");
  expect_wrong("hmm", "all memory of their worker", "uvm_disable_hmm=1");
  file(parameter, "Y\n");
  EXPECT_EQ(found("hmm").fact, "off");
  fs::remove(root_ + parameter);
  EXPECT_EQ(found("hmm").state, Finding::State::kSkipped);
}

TEST_F(HostDoctor, TheHookIsMissing) {
  ::chmod((root_ + "/etc/libvirt/hooks/qemu.d/sluice").c_str(), 0644);
  expect_wrong("hook", "not executable", "chmod 755");
  fs::remove(root_ + "/etc/libvirt/hooks/qemu.d/sluice");
  expect_wrong("hook", "there is no", "--reinstall");
  file("/etc/libvirt/hooks/qemu", "exec sluice-libvirt-hook \"$@\"\n", 0755);
  EXPECT_EQ(found("hook").fact, "/etc/libvirt/hooks/qemu");
}

TEST_F(HostDoctor, TheEventServiceDoesNotRun) {
  file("/proc/77/cmdline", "/usr/bin/vi");
  expect_wrong("events", "does not run", "systemctl enable --now sluice-libvirt-events");
}

TEST_F(HostDoctor, AppArmorDenies) {
  const std::string denied =
      "4,1,2,-;audit: type=1400 apparmor=\"DENIED\" operation=\"connect\" "
      "profile=\"libvirt-c7a5\" name=\"/run/sluice/vgpu/vm1.sock\" pid=5\n";
  const std::string other =
      "4,1,2,-;audit: apparmor=\"DENIED\" operation=\"open\" profile=\"firefox\" "
      "name=\"/etc/x\"\n";
  file("/dev/kmsg", denied + other);
  expect_wrong("apparmor", "libvirt-c7a5: connect of /run/sluice/vgpu/vm1.sock", "libvirt-qemu");
  EXPECT_EQ(found("apparmor").fact.find("firefox"), std::string::npos);
  // The domain was started anew since.
  file("/dev/kmsg", denied +
                        "4,1,3,-;audit: apparmor=\"STATUS\" operation=\"profile_load\" "
                        "profile=\"unconfined\" name=\"libvirt-c7a5\"\n");
  EXPECT_EQ(found("apparmor").state, Finding::State::kRight) << found("apparmor").fact;
  fs::remove(root_ + "/dev/kmsg");
  EXPECT_EQ(found("apparmor").state, Finding::State::kSkipped);
  file("/sys/module/apparmor/parameters/enabled", "N\n");
  EXPECT_EQ(found("apparmor").fact, "off");
}

TEST_F(HostDoctor, ADomainHasLostItsVgpu) {
  facts_.vgpus = json::value(json::array{});
  expect_wrong("domains", "vm1", "shut it off");
  (*facts_.domains)[0].state = "shut off";
  EXPECT_EQ(found("domains").state, Finding::State::kRight);
  // Renamed: its vGPU is known by the owner.
  (*facts_.domains)[0].state = "running";
  facts_.vgpus = json::parse(std::string(R"([{"name": "old", "owner": "libvirt:)") + kUuid +
                             R"(", "socket": "/run/sluice/vgpu/vm1.sock"}])");
  EXPECT_EQ(found("domains").state, Finding::State::kRight);
}

TEST_F(HostDoctor, ADomainHasNoIommu) {
  (*facts_.domains)[0].xml = domain("");
  const auto polls = [&] {
    EXPECT_EQ(found("iommu").state, Finding::State::kRight);
    return found("iommu").fact.find("the guest polls") != std::string::npos &&
           found("iommu").fact.find("vm1") != std::string::npos;
  };
  EXPECT_TRUE(polls());
  (*facts_.domains)[0].xml = domain("<iommu model='intel'/>");
  EXPECT_TRUE(polls());
  (*facts_.domains)[0].xml = "<domain";
  EXPECT_FALSE(polls()) << "of XML that is none nothing is said";
}

TEST_F(HostDoctor, ThePortHasNoRoom) {
  const auto arguments = [](const char* size) {
    return std::string(
               "<qemu:commandline><qemu:arg value='-global'/><qemu:arg "
               "value='pcie-root-port.pref64-reserve=") +
           size + "'/></qemu:commandline>";
  };
  (*facts_.domains)[0].xml = domain(std::string(kIommu) + kPort, arguments("256M"));
  expect_wrong("window", "(512 MiB): vm1", "pref64-reserve");
  (*facts_.domains)[0].xml = domain(std::string(kIommu) + kPort);
  expect_wrong("window", "(512 MiB): vm1", "pref64-reserve");
  (*facts_.domains)[0].xml = domain(std::string(kIommu) + kPort, arguments("512M"));
  EXPECT_EQ(found("window").state, Finding::State::kRight);
}

TEST_F(HostDoctor, HugepagesAreMissing) {
  (*facts_.domains)[0].xml = domain(kIommu, "<memoryBacking><hugepages/></memoryBacking>");
  expect_wrong("hugepages", "vm1", "vm.nr_hugepages");
  file("/proc/meminfo", "MemAvailable: 8000000 kB\nHugePages_Total:      80\n");
  EXPECT_EQ(found("hugepages").fact, "80 pages");
}

TEST_F(HostDoctor, DomainsAreSavedWhenTheHostIsShutDown) {
  constexpr char kScript[] = "/usr/libexec/libvirt-guests.sh";
  file(kScript, "ON_SHUTDOWN=\"suspend\"\ncase $1 in\n  shutdown) shift\n  ON_SHUTDOWN=shutdown\n");
  EXPECT_NE(found("save").fact.find("'sluicectl save' does, without it: vm1"), std::string::npos);
  const std::string wants = root_ + "/etc/systemd/system/multi-user.target.wants";
  fs::create_directories(wants);
  fs::create_symlink("/lib/systemd/system/libvirt-guests.service",
                     wants + "/libvirt-guests.service");
  expect_wrong("save", "vm1", "ON_SHUTDOWN=shutdown in /etc/sysconfig/libvirt-guests");
  file("/etc/default/libvirt-guests", "#ON_SHUTDOWN=suspend\nON_SHUTDOWN=shutdown # not saved\n");
  EXPECT_EQ(found("save").state, Finding::State::kRight);
  file("/etc/default/libvirt-guests", "ON_SHUTDOWN=shutdown\nON_SHUTDOWN='suspend'\n");
  expect_wrong("save", "vm1", "in /etc/default/libvirt-guests");
  (*facts_.domains)[0].xml = "<domain><name>vm1</name></domain>";
  EXPECT_EQ(found("save").state, Finding::State::kRight);
}

TEST_F(HostDoctor, AGuestHasNoAgent) {
  facts_.shown["vm1"].get_object()["agent"] = {{"epoch", 0}, {"silent", false}};
  expect_wrong("agents", "vm1", "sluice-guest-agent");
  facts_.shown["vm1"].get_object()["agent"] = {{"epoch", 7}, {"silent", true}};
  expect_wrong("agents", "silent in the guest of vm1", "journalctl");
  facts_.shown["vm1"].get_object()["state"] = "waiting";
  EXPECT_EQ(found("agents").state, Finding::State::kRight);
}

TEST_F(HostDoctor, AGuestOfAnotherRelease) {
  auto& agent = facts_.shown["vm1"].get_object()["agent"];
  EXPECT_EQ(found("agents").fact, "each connected guest has one");
  for (const auto& [release, named] :
       {std::pair{"0.2.0", "vm1 (0.2.0)"}, std::pair{"", "vm1 (unknown)"}}) {
    agent = {{"epoch", 7}, {"release", release}, {"silent", false}};
    EXPECT_EQ(found("agents").state, Finding::State::kRight);
    EXPECT_NE(found("agents").fact.find(named), std::string::npos) << found("agents").fact;
  }
}

// sluiced is of another version, or not sluiced at all.
TEST_F(HostDoctor, AnswersOfAnotherShapeAreNoCrash) {
  for (const char* text : {"null", "[]", "{}", "7", R"({"device": 5, "workers": [], "pid": {}})"}) {
    facts_.info = json::parse(text);
    facts_.vgpus = json::parse(text);
    facts_.shown["vm1"] = json::parse(text);
    EXPECT_EQ(examine_host(facts_).size(), 23u) << text;
  }
}

}  // namespace
}  // namespace sluice::cli
