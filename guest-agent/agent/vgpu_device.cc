// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/vgpu_device.h"

#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>

#include "guest-agent/agent/sysfs.h"
#include "guest-agent/agent/sysfs_device.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/fence.h"

namespace sluice::guest {
namespace {

constexpr size_t kPage = 4096;
constexpr unsigned kMostVectors = SLUICE_MAX_SLOTS + 1;

Result<void> bind_to_vfio(const std::string& address) {
  const std::string folder = device_folder("/sys", address);
  const std::string driver = link_name(folder + "/driver");
  if (driver == "vfio-pci") return {};
  if (!driver.empty())
    return problem(DeviceProblem::kBusy, "the driver " + driver + " has " + address +
                                             ": unbind it, or tell that driver to leave it alone");
  if (::access("/sys/bus/pci/drivers/vfio-pci", F_OK) != 0)
    return problem(DeviceProblem::kNoVfio,
                   "the kernel module vfio-pci is not loaded: run `modprobe vfio-pci`");
  if (auto r = write_line(folder + "/driver_override", "vfio-pci"); !r) return r;
  if (auto r = write_line("/sys/bus/pci/drivers_probe", address); !r) return r;
  if (link_name(folder + "/driver") != "vfio-pci")
    return problem(DeviceProblem::kNoVfio,
                   "vfio-pci did not take " + address + "; the kernel's log says why");
  return {};
}

Result<vfio_region_info> region_info(int device, uint32_t index) {
  vfio_region_info info{};
  info.argsz = sizeof info;
  info.index = index;
  if (::ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &info) != 0)
    return problem_errno(DeviceProblem::kOther, "region " + std::to_string(index));
  return info;
}

// VFIO leaves memory decoding and bus mastering off; without the latter no MSI-X leaves the device.
Result<void> enable_device(int device) {
  auto config = region_info(device, VFIO_PCI_CONFIG_REGION_INDEX);
  if (!config) return config.error();
  const auto at = static_cast<off_t>(config->offset) + PCI_COMMAND;
  uint16_t command = 0;
  if (::pread(device, &command, sizeof command, at) != sizeof command)
    return problem_errno(DeviceProblem::kOther, "read PCI_COMMAND");
  command |= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
  if (::pwrite(device, &command, sizeof command, at) != sizeof command)
    return problem_errno(DeviceProblem::kOther, "write PCI_COMMAND");
  return {};
}

Result<void> map_bars(VgpuDevice& d) {
  auto registers = region_info(d.device.get(), VFIO_PCI_BAR0_REGION_INDEX);
  if (!registers) return registers.error();
  auto memory = region_info(d.device.get(), VFIO_PCI_BAR2_REGION_INDEX);
  if (!memory) return memory.error();
  if ((registers->flags & memory->flags & VFIO_REGION_INFO_FLAG_MMAP) == 0)
    return problem(DeviceProblem::kOther, "the device's memory cannot be mapped");
  d.doorbell_offset = registers->offset;
  d.region_offset = memory->offset;
  d.region_bytes = memory->size;
  d.control_bytes = std::min<uint64_t>(memory->size, SLUICE_SLOT_OFFSET);
  void* at = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, d.device.get(),
                    static_cast<off_t>(d.doorbell_offset));
  if (at == MAP_FAILED) return problem_errno(DeviceProblem::kOther, "map the registers");
  d.registers = at;
  at = ::mmap(nullptr, d.control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d.device.get(),
              static_cast<off_t>(d.region_offset));
  if (at == MAP_FAILED) return problem_errno(DeviceProblem::kOther, "map the shared memory");
  d.control = static_cast<std::byte*>(at);
  return {};
}

// The device's interrupts of that kind fire these, in order. False: errno says why not.
bool fire(const VgpuDevice& d, uint32_t index, std::span<const Fd> eventfds) {
  std::vector<char> buffer(sizeof(vfio_irq_set) + eventfds.size() * sizeof(int32_t));
  auto* set = reinterpret_cast<vfio_irq_set*>(buffer.data());
  set->argsz = static_cast<uint32_t>(buffer.size());
  set->flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  set->index = index;
  set->start = 0;
  set->count = static_cast<uint32_t>(eventfds.size());
  for (size_t i = 0; i < eventfds.size(); ++i) {
    const int32_t fd = eventfds[i].get();
    std::memcpy(set->data + i * sizeof fd, &fd, sizeof fd);
  }
  return ::ioctl(d.device.get(), VFIO_DEVICE_SET_IRQS, set) == 0;
}

Result<void> bind_interrupts(VgpuDevice& d) {
  vfio_irq_info info{};
  info.argsz = sizeof info;
  info.index = VFIO_PCI_MSIX_IRQ_INDEX;
  if (::ioctl(d.device.get(), VFIO_DEVICE_GET_IRQ_INFO, &info) != 0)
    return problem_errno(DeviceProblem::kOther, "interrupt vectors");
  const unsigned count = std::min(info.count, kMostVectors);
  if (count < 2)
    return problem(DeviceProblem::kOther,
                   "the device has fewer than 2 interrupt vectors: <msi vectors='..'> in its XML "
                   "must be the vGPU's slots plus 1");
  for (unsigned i = 0; i < count; ++i) {
    auto fd = make_eventfd();
    if (!fd) return fd.error();
    d.vectors.push_back(std::move(*fd));
  }
  if (!fire(d, VFIO_PCI_MSIX_IRQ_INDEX, d.vectors))
    return problem_errno(DeviceProblem::kNoVfio, "bind the interrupt vectors");
  return {};
}

Result<void> open_vfio(VgpuDevice& d) {
  const std::string group = link_name(device_folder("/sys", d.address) + "/iommu_group");
  if (group.empty())
    return problem(
        DeviceProblem::kNoVfio,
        "this VM has no IOMMU: for one its XML needs <iommu model='intel'> with intremap='on', "
        "and its kernel intel_iommu=on");
  if (auto bound = bind_to_vfio(d.address); !bound) return bound;

  d.container = Fd(::open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC));
  if (!d.container) return problem_errno(DeviceProblem::kNoVfio, "open /dev/vfio/vfio");
  if (::ioctl(d.container.get(), VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
      ::ioctl(d.container.get(), VFIO_CHECK_EXTENSION, VFIO_TYPE1_IOMMU) != 1)
    return problem(DeviceProblem::kNoVfio,
                   "the kernel's VFIO lacks the type 1 IOMMU driver: is the "
                   "module vfio_iommu_type1 loaded");
  d.group = Fd(::open(("/dev/vfio/" + group).c_str(), O_RDWR | O_CLOEXEC));
  if (!d.group)
    return problem_errno(errno == EBUSY ? DeviceProblem::kBusy : DeviceProblem::kNoVfio,
                         "open /dev/vfio/" + group +
                             " (another agent, or a program of one that "
                             "has ended, may hold it)");
  vfio_group_status status{};
  status.argsz = sizeof status;
  if (::ioctl(d.group.get(), VFIO_GROUP_GET_STATUS, &status) != 0)
    return problem_errno(DeviceProblem::kOther, "status of IOMMU group " + group);
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
    std::string others;
    for (const std::string& name : entries_of("/sys/kernel/iommu_groups/" + group + "/devices"))
      if (name != d.address) others += " " + name;
    return problem(DeviceProblem::kBusy,
                   "other devices in the vGPU's IOMMU group have drivers:" + others);
  }
  const int container = d.container.get();
  if (::ioctl(d.group.get(), VFIO_GROUP_SET_CONTAINER, &container) != 0)
    return problem_errno(DeviceProblem::kOther, "add the IOMMU group to the container");
  if (::ioctl(d.container.get(), VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU) != 0)
    return problem_errno(
        DeviceProblem::kNoVfio,
        "take the IOMMU (EPERM: no interrupt remapping; intremap='on' is missing)");
  d.device = Fd(::ioctl(d.group.get(), VFIO_GROUP_GET_DEVICE_FD, d.address.c_str()));
  if (!d.device) return problem_errno(DeviceProblem::kBusy, "open device " + d.address);
  ::fcntl(d.device.get(), F_SETFD, FD_CLOEXEC);
  return {};
}

const char* state_name(uint32_t state) {
  switch (state) {
    case SLUICE_CHANNEL_STARTING:
      return "starting";
    case SLUICE_CHANNEL_READY:
      return "ready";
    case SLUICE_CHANNEL_REFUSED:
      return "refused";
    case SLUICE_CHANNEL_CLOSED:
      return "closed";
  }
  return "unknown";
}

std::string reason_of(const sluice_channel_header& header) {
  return std::string(header.reason, strnlen(header.reason, sizeof header.reason));
}

}  // namespace

VgpuDevice::~VgpuDevice() {
  if (control != nullptr) ::munmap(control, control_bytes);
  if (registers != nullptr) ::munmap(registers, kPage);
}

std::vector<std::string> find_vgpu_devices(const std::string& sysfs) {
  std::vector<std::string> found;
  char vendor[16], device[16];
  std::snprintf(vendor, sizeof vendor, "0x%04x", SLUICE_IVSHMEM_VENDOR);
  std::snprintf(device, sizeof device, "0x%04x", SLUICE_IVSHMEM_DEVICE);
  for (const std::string& address : entries_of(sysfs + "/bus/pci/devices"))
    if (read_line(device_folder(sysfs, address) + "/vendor") == vendor &&
        read_line(device_folder(sysfs, address) + "/device") == device)
      found.push_back(address);
  return found;
}

namespace {

Result<std::unique_ptr<VgpuDevice>> open_by_vfio(const std::string& address) {
  auto d = std::make_unique<VgpuDevice>();
  d->address = address;
  if (auto r = open_vfio(*d); !r) return r.error();
  if (auto r = enable_device(d->device.get()); !r) return r.error();
  if (auto r = map_bars(*d); !r) return r.error();
  if (auto r = check_channel_header(*d); !r) return r.error();
  if (auto r = bind_interrupts(*d); !r) return r.error();
  bind_release_request(*d);
  return d;
}

}  // namespace

void bind_release_request(VgpuDevice& d) {
  auto fd = d.transport == Transport::kVfio ? make_eventfd() : Result<Fd>(Fd());
  if (fd && *fd && fire(d, VFIO_PCI_REQ_IRQ_INDEX, std::span(&*fd, 1)))
    d.wanted_back = std::move(*fd);
}

const char* name_of(Transport transport) {
  return transport == Transport::kVfio ? "vfio" : "sysfs";
}

Result<std::unique_ptr<VgpuDevice>> open_vgpu_device(const std::string& address,
                                                     std::optional<Transport> transport,
                                                     const std::string& sysfs) {
  if (transport != Transport::kSysfs) {
    auto opened = open_by_vfio(address);
    if (opened || transport == Transport::kVfio) return opened;
    if (opened.error().code != static_cast<int>(DeviceProblem::kNoVfio)) return opened;
    std::fprintf(stderr, "sluice-agent: without VFIO, and so without interrupts: %s\n",
                 opened.error().message.c_str());
  }
  auto d = std::make_unique<VgpuDevice>();
  d->address = address;
  if (auto r = open_by_sysfs(*d, sysfs); !r) return r.error();
  if (auto r = check_channel_header(*d); !r) return r.error();
  return d;
}

std::string host_release(const sluice_channel_header& header) {
  const std::string release(header.host_release,
                            strnlen(header.host_release, sizeof header.host_release));
  return release.empty() ? "of an unknown release" : release;
}

Result<void> check_channel_header(const VgpuDevice& d) {
  const sluice_channel_header& header = d.header();
  if (load_shared(header.magic, std::memory_order_acquire) != SLUICE_CHANNEL_MAGIC)
    return problem(DeviceProblem::kOther, "the shared memory of " + d.address + " is not Sluice's");
  if (sluice_channel_common(header.version, header.oldest) == 0) {
    const bool old_host = header.version < SLUICE_CHANNEL_VERSION;
    return problem(
        DeviceProblem::kOther,
        "the host (" + host_release(header) + ") speaks version " + std::to_string(header.version) +
            " of the channel, this agent (" + SLUICE_VERSION + ") " +
            std::to_string(SLUICE_CHANNEL_VERSION) + "; upgrade " +
            (old_host ? "the host's package sluice" : "this guest's package sluice-guest-agent"));
  }
  const uint32_t state = load_shared(header.state, std::memory_order_acquire);
  if (state == SLUICE_CHANNEL_REFUSED || state == SLUICE_CHANNEL_CLOSED)
    return problem(DeviceProblem::kRefused, "the host gives no vGPU: " + reason_of(header));
  const uint64_t slots_end = SLUICE_SLOT_OFFSET + uint64_t{header.slot_count} * SLUICE_SLOT_STRIDE;
  if (header.slot_count == 0 || header.slot_count > SLUICE_MAX_SLOTS ||
      header.slot_stride != SLUICE_SLOT_STRIDE || header.region_bytes != d.region_bytes ||
      slots_end > d.region_bytes || d.control_bytes < SLUICE_SLOT_OFFSET)
    return problem(DeviceProblem::kOther, "the channel's sizes do not fit the device");
  return {};
}

std::optional<sluice_channel_header> read_channel_header(const std::string& address,
                                                         const std::string& sysfs) {
  const std::string path = device_folder(sysfs, address) + "/resource2";
  struct stat st;
  // Beyond the end of a file a page cannot be read.
  if (::stat(path.c_str(), &st) != 0 || st.st_size < static_cast<off_t>(kPage)) return std::nullopt;
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* at = fd ? ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd.get(), 0) : MAP_FAILED;
  if (at == MAP_FAILED) return std::nullopt;
  sluice_channel_header header;  // what is off reads as all ones
  std::memcpy(&header, at, sizeof header);
  ::munmap(at, kPage);
  return header;
}

std::string describe_devices(const std::string& sysfs) {
  std::string out;
  auto line = [&out](const std::string& text) { out += text + "\n"; };
  line(std::string("vfio-pci module: ") +
       (::access((sysfs + "/bus/pci/drivers/vfio-pci").c_str(), F_OK) == 0 ? "loaded"
                                                                           : "not loaded"));
  line(std::string("IOMMU groups: ") +
       std::to_string(entries_of(sysfs + "/kernel/iommu_groups").size()));
  const auto devices = find_vgpu_devices(sysfs);
  if (devices.empty()) line("vGPU device: none (no PCI device 1af4:1110)");
  for (const std::string& address : devices) {
    const std::string folder = device_folder(sysfs, address);
    const std::string driver = link_name(folder + "/driver");
    const std::string group = link_name(folder + "/iommu_group");
    line("vGPU device: " + address);
    line("  revision: " + read_line(folder + "/revision") + " (0x01: with doorbells)");
    line("  driver: " + (driver.empty() ? "none" : driver));
    line("  IOMMU group: " + (group.empty() ? "none" : group));
    struct stat st;
    if (::stat((folder + "/resource2").c_str(), &st) == 0)
      line("  shared memory: " + std::to_string(st.st_size >> 20) + " MiB");
    const auto header = read_channel_header(address, sysfs);
    if (!header) {
      line("  channel: cannot be read without VFIO");
      continue;
    }
    if (header->magic != SLUICE_CHANNEL_MAGIC) {
      line("  channel: not readable now (the device is off, or not Sluice's)");
    } else {
      line("  channel: version " + std::to_string(header->version) + ", " +
           state_name(header->state) + ", " + std::to_string(header->slot_count) + " slots");
      line("  beats: host " + std::to_string(header->host_beat) + ", agent " +
           std::to_string(header->agent_beat));
      if (header->reason[0] != '\0') line("  reason: " + reason_of(*header));
    }
  }
  return out;
}

}  // namespace sluice::guest
