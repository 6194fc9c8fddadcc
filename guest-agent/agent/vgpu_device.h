// SPDX-License-Identifier: Apache-2.0
// The vGPU's PCI device (ivshmem-doorbell) as sluice-agent holds it: found in sysfs, mapped, driven
// through VFIO with one event descriptor per interrupt vector. Where there is no VFIO, the device
// is mapped from sysfs and no interrupt arrives. No kernel module of ours.
//
// Owned by sluice-agent, one per VM, one thread. It opens and maps; it speaks no protocol. What the
// host wrote is shown as it is: the guest trusts its host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/channel.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::guest {

// Why there is no usable device; also sluice-agent's exit status, so that a service manager can
// tell.
enum class DeviceProblem {
  kOther = 1,
  kNoDevice = 3,  // no vGPU is attached to this VM
  kRefused = 4,   // the host shows a reason instead of a vGPU
  kNoVfio = 5,    // no IOMMU or no vfio-pci, and the kernel maps nothing by sysfs either
  kBusy = 6       // another agent, or another driver, has the device
};

// How the device is driven.
enum class Transport {
  kVfio,  // needs an IOMMU; interrupts wake whoever waits
  kSysfs  // needs nothing; whoever waits polls
};
const char* name_of(Transport transport);

// An open device. Plain data, so that tests can make one of ordinary memory.
struct VgpuDevice {
  std::string address;  // "0000:01:02.0", for logs
  Transport transport = Transport::kVfio;
  Fd container, group;  // kept open as long as the device is used
  Fd device;            // what programs map, by the offsets below; kSysfs: resource2
  Fd registers_file;    // kSysfs: resource0, which programs map for the doorbell
  uint64_t region_offset = 0, region_bytes = 0;  // BAR2
  uint64_t doorbell_offset = 0;                  // BAR0
  std::byte* control = nullptr;  // the region's first `control_bytes`: header and control rings
  size_t control_bytes = 0;
  void* registers = nullptr;  // BAR0's page
  size_t registers_at = 0;    // the byte in that page at which BAR0 begins
  std::vector<Fd> vectors;    // vector i fires vectors[i]
  Fd wanted_back;             // kVfio: fires when the kernel waits for the device, to detach it

  volatile uint32_t* doorbell() const {
    return reinterpret_cast<volatile uint32_t*>(static_cast<char*>(registers) + registers_at +
                                                SLUICE_IVSHMEM_DOORBELL);
  }
  sluice_channel_header& header() const {
    return *reinterpret_cast<sluice_channel_header*>(control);
  }
  VgpuDevice() = default;
  VgpuDevice(const VgpuDevice&) = delete;
  VgpuDevice& operator=(const VgpuDevice&) = delete;
  ~VgpuDevice();
};

// PCI addresses of all ivshmem devices, in order. `sysfs` is "/sys" but for tests.
std::vector<std::string> find_vgpu_devices(const std::string& sysfs = "/sys");

// Opens and maps the device: through vfio-pci with its interrupts, or else from sysfs. `transport`:
// that one only. The error's code is a DeviceProblem, its message says what to do. A second call
// while another agent runs is kBusy. `sysfs` is "/sys" but for tests of kSysfs.
Result<std::unique_ptr<VgpuDevice>> open_vgpu_device(
    const std::string& address, std::optional<Transport> transport = std::nullopt,
    const std::string& sysfs = "/sys");

// By VFIO: makes `wanted_back`, also for a device that another agent opened. Kernels without that
// request, and other transports, have none.
void bind_release_request(VgpuDevice& device);

// Whether the host shows a vGPU there, and of our version: kRefused with its reason, or kOther.
Result<void> check_channel_header(const VgpuDevice& device);

// The header as the host shows it, without an agent's help; nullopt: it cannot be read now, for
// example because vfio-pci has the device to itself.
std::optional<sluice_channel_header> read_channel_header(const std::string& address,
                                                         const std::string& sysfs = "/sys");
// The host's release, for people.
std::string host_release(const sluice_channel_header& header);

// What `sluice-agent --check` prints, one fact per line; opens nothing that an agent could be
// using.
std::string describe_devices(const std::string& sysfs = "/sys");

}  // namespace sluice::guest
