// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/sysfs_device.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "guest-agent/agent/sysfs.h"
#include "mediator/base/unix_socket.h"

namespace sluice::guest {
namespace {

constexpr size_t kSysfsPage = 4096;

// sysfs enables no device that a driver has. vfio-pci may have it from an attempt that failed.
Result<void> release_from_vfio(const std::string& folder, const std::string& address) {
  const std::string driver = link_name(folder + "/driver");
  if (driver.empty()) return {};
  if (driver != "vfio-pci")
    return problem(DeviceProblem::kBusy, "the driver " + driver + " has " + address +
                                             ": unbind it, so that the agent can have the device");
  return write_line(folder + "/driver/unbind", address);
}

Result<Fd> open_resource(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return problem_errno(DeviceProblem::kOther, "open " + path);
  return fd;
}

Result<void*> map_resource(const Fd& fd, size_t bytes, const std::string& path) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at != MAP_FAILED) return at;
  if (errno == EPERM)
    return problem(DeviceProblem::kNoVfio,
                   "the kernel is locked down (Secure Boot) and maps no device by sysfs: the "
                   "virtual machine needs an IOMMU, <iommu model='intel'> with intremap='on' in "
                   "its XML and intel_iommu=on for its kernel");
  return problem_errno(DeviceProblem::kOther, "map " + path);
}

// BAR0 is smaller than a page and may begin anywhere in one. The first line of `resource` is
// "START END FLAGS" of it.
size_t place_in_page(const std::string& folder) {
  return std::strtoull(read_line(folder + "/resource").c_str(), nullptr, 16) % kSysfsPage;
}

}  // namespace

Result<void> open_by_sysfs(VgpuDevice& d, const std::string& sysfs) {
  const std::string folder = device_folder(sysfs, d.address);
  if (auto released = release_from_vfio(folder, d.address); !released) return released;
  const std::string memory = folder + "/resource2", registers = folder + "/resource0";
  auto region = open_resource(memory);
  if (!region) return region.error();
  d.device = std::move(*region);
  if (::flock(d.device.get(), LOCK_EX | LOCK_NB) != 0)
    return problem_errno(
        errno == EWOULDBLOCK ? DeviceProblem::kBusy : DeviceProblem::kOther,
        "lock " + memory + " (another agent, or a program of one that has ended, may hold it)");
  // The kernel counts: once is enough, and it stays on for the next agent.
  if (read_line(folder + "/enable") == "0")
    if (auto on = write_line(folder + "/enable", "1"); !on) return on;

  auto page = open_resource(registers);
  if (!page) return page.error();
  d.registers_file = std::move(*page);
  struct stat st {};
  if (::fstat(d.device.get(), &st) != 0)
    return problem_errno(DeviceProblem::kOther, "size of " + memory);
  d.transport = Transport::kSysfs;
  d.region_bytes = static_cast<uint64_t>(st.st_size);
  d.control_bytes = std::min<uint64_t>(d.region_bytes, SLUICE_SLOT_OFFSET);
  d.registers_at = place_in_page(folder);
  if (d.registers_at > kSysfsPage - SLUICE_IVSHMEM_DOORBELL - sizeof(uint32_t))
    return problem(DeviceProblem::kOther, "the registers of " + d.address + " leave their page");
  auto at = map_resource(d.registers_file, kSysfsPage, registers);
  if (!at) return at.error();
  d.registers = *at;
  at = map_resource(d.device, d.control_bytes, memory);
  if (!at) return at.error();
  d.control = static_cast<std::byte*>(*at);
  // The agent's poll loop has a vector 0 on either transport. This one never fires.
  auto silent = make_eventfd();
  if (!silent) return silent.error();
  d.vectors.push_back(std::move(*silent));
  return {};
}

}  // namespace sluice::guest
