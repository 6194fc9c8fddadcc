// SPDX-License-Identifier: Apache-2.0
// Checks of the GPU and of the kernel.
#include <charconv>
#include <sstream>

#include "mediator/cli/answer.h"
#include "mediator/cli/doctor/checks.h"
#include "mediator/cli/doctor/limits.h"

namespace sluice::cli::checks {
namespace {

constexpr char kPci[] = "/sys/bus/pci/devices/";

std::string first_line(const std::optional<std::string>& file) {
  return file ? file->substr(0, file->find('\n')) : "";
}

// PCI address of a display controller of NVIDIA's; empty: none.
std::string nvidia_gpu(const HostFiles& files) {
  for (const std::string& address : files.names(kPci)) {
    const std::string folder = kPci + address;
    if (first_line(files.read(folder + "/vendor")) == "0x10de" &&
        first_line(files.read(folder + "/class")).starts_with("0x03"))
      return address;
  }
  return "";
}

// The driver library that is installed, by its file's name: "libcuda.so.550.54.15".
std::string library_version(const HostFiles& files) {
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu", "/usr/lib"}) {
    const std::string file = files.link(std::string(folder) + "/libcuda.so.1");
    if (file.starts_with("libcuda.so.") && file != "libcuda.so.1") return file.substr(11);
  }
  return "";
}

// Whether NVIDIA's kernel module has lost a GPU, and neither it nor the GPU was started since.
// Lines are the kernel's own; other facilities' (8 and more) may be a program's. The module says
// "NVRM: loading" when it has looked at all GPUs, so what begins a load is its NVLink part's line.
bool lost_gpu(const std::string& log) {
  bool lost = false;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    const size_t text = line.find(';');
    unsigned priority = 8;
    std::from_chars(line.data(), line.data() + line.size(), priority);
    if (text == std::string::npos || priority >= 8) continue;
    const std::string_view said = std::string_view(line).substr(text + 1);
    if (said.starts_with("nvidia-nvlink: Nvlink Core is being initialized") ||
        (said.starts_with("nvidia ") && said.find(": enabling device") != said.npos))
      lost = false;
    else if (said.starts_with("NVRM: ") && said.find("fallen off the bus") != said.npos)
      lost = true;
  }
  return lost;
}

std::string device_kind(const HostFacts& facts) {
  const auto* device = facts.info ? field(*facts.info, "device") : nullptr;
  return device ? text(*device, "kind") : "";
}

// "MemAvailable:   123 kB" of /proc/meminfo, in its unit; nullopt: no such line.
std::optional<uint64_t> meminfo(const HostFiles& files, const std::string& name) {
  std::istringstream in(files.read("/proc/meminfo").value_or(""));
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name + ":")) continue;
    uint64_t value = 0;
    std::istringstream number(line.substr(name.size() + 1));
    if (number >> value) return value;
  }
  return std::nullopt;
}

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

bool cpu_flag(const HostFiles& files, const std::string& flag) {
  const std::string text = files.read("/proc/cpuinfo").value_or("") + "\n";
  const size_t at = text.find("\nflags");
  const std::string line =
      at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  return (line + " ").find(" " + flag + " ") != std::string::npos;
}

}  // namespace

Verdict device(const HostFacts& facts) {
  const std::string gpu = nvidia_gpu(facts.files), kind = device_kind(facts);
  if (!gpu.empty() && facts.files.exists("/etc/ld.so.conf.d/00-sluice-guest.conf"))
    return wrong(
        "the guest's package is installed here: workers and MPS load its libcuda.so.1 instead of "
        "NVIDIA's",
        "apt remove sluice-guest-agent; systemctl restart sluiced");
  const std::string module = first_line(facts.files.read("/sys/module/nvidia/version"));
  const std::string library = library_version(facts.files);
  if (!gpu.empty() && module.empty())
    return wrong("NVIDIA GPU " + gpu + ", but NVIDIA's kernel module is not loaded",
                 "install NVIDIA's driver, or: modprobe nvidia; dmesg says why it is refused");
  if (!module.empty() && !library.empty() && module != library)
    return wrong("NVIDIA's kernel module is " + module + ", libcuda.so.1 is " + library,
                 "restart the host, so that the module of the installed driver is loaded");
  if (!module.empty() && library.empty())
    return wrong("NVIDIA's kernel module is " + module + ", and there is no libcuda.so.1",
                 "install the driver's library (Debian: libcuda1) of version " + module);
  if (!module.empty() && !facts.files.exists("/dev/nvidiactl"))
    return wrong("NVIDIA's driver " + module + ", but no /dev/nvidiactl",
                 "nvidia-smi makes it; so does the service nvidia-persistenced");
  if (!module.empty() && lost_gpu(facts.files.read_log("/dev/kmsg").value_or("")))
    return wrong(
        "NVIDIA's driver " + module + " has lost a GPU: it has fallen off the bus (Xid 79)",
        "restart the host; if it comes again: the GPU's power, cooling, slot. dmesg names it");
  if (kind.empty())
    return gpu.empty() ? skipped("sluiced was not reached; no NVIDIA GPU")
                       : right("NVIDIA GPU " + gpu + ", driver " + module);
  if (kind == "nvidia") return right("NVIDIA's, driver " + module);
  if (!gpu.empty())
    return wrong("there is NVIDIA GPU " + gpu + ", but sluiced uses the software GPU",
                 "set device.kind = \"nvidia\" in /etc/sluice/sluice.toml, and restart sluiced");
  return right("the software GPU; there is no NVIDIA GPU");
}

Verdict mps(const HostFacts& facts) {
  if (!facts.info) return skipped("sluiced was not reached");
  if (device_kind(facts) != "nvidia") return right("not needed: no NVIDIA GPU is used");
  const std::string sharing = text(*facts.info, "sharing");
  const bool needed = sharing == "sms" || sharing == "turns by priority";
  const bool runs = facts.files.runs("nvidia-cuda-mps-control");
  if (needed && !runs)
    return wrong("vGPUs share by " + sharing + ", which needs MPS, and it does not run");
  if (!needed && runs)
    return wrong("MPS runs, and vGPUs share by " + sharing +
                     ", which does not need it: a fault of "
                     "one worker can end the others",
                 "systemctl disable --now sluice-mps (or, of a server of your own, echo quit | "
                 "nvidia-cuda-mps-control); then restart sluiced");
  return right(needed ? "runs" : "does not run, and is not needed");
}

// Heterogeneous memory management: kernels reach all memory of their process. A guest's kernel
// would reach its worker's.
Verdict hmm(const HostFacts& facts) {
  if (!facts.files.exists("/sys/module/nvidia_uvm")) return right("not there: no nvidia_uvm");
  const std::string version = facts.files.read("/proc/driver/nvidia/version").value_or("");
  if (version.find("Open Kernel Module") == std::string::npos)
    return right("not there: only NVIDIA's open kernel modules have it");
  const std::string off =
      first_line(facts.files.read("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"));
  if (off.empty()) return skipped("nvidia_uvm does not say");
  if (off == "Y" || off == "1") return right("off");
  return wrong("nvidia_uvm lets kernels read and write all memory of their worker");
}

Verdict cgroup(const HostFacts& facts) {
  if (!facts.files.exists("/sys/fs/cgroup/cgroup.controllers"))
    return wrong("/sys/fs/cgroup is no cgroup v2");
  if (!facts.info) return right("v2; delegation was not checked");
  // The unit's own cgroup is the one below which sluiced makes those of workers.
  const std::string line =
      first_line(facts.files.read("/proc/" + text(*facts.info, "pid") + "/cgroup"));
  if (!line.starts_with("0::")) return skipped("v2; sluiced's own cgroup cannot be read");
  const std::string folder = "/sys/fs/cgroup" + line.substr(3);
  const auto controllers = facts.files.read(folder + "/cgroup.controllers");
  if (!controllers) return skipped("v2; " + folder + " cannot be read");
  for (const char* needed : {"memory", "pids"})
    if ((" " + first_line(controllers) + " ").find(" " + std::string(needed) + " ") ==
        std::string::npos)
      return wrong("the controller " + std::string(needed) + " is not delegated to " + folder,
                   "set Delegate=yes in sluiced's unit; systemctl daemon-reload; restart sluiced");
  if (const auto list = worker_list(facts, "missing_limits"); list && !list->empty())
    return wrong("workers have no limit: " + *list,
                 "set Delegate=yes and DelegateSubgroup=sluice-host (systemd 254) in sluiced's "
                 "unit; systemctl daemon-reload; restart sluiced");
  return right("v2, delegated to " + folder);
}

Verdict kvm(const HostFacts& facts) {
  if (!facts.files.exists("/dev/kvm")) {
    if (cpu_flag(facts.files, "vmx"))
      return wrong("no /dev/kvm", "modprobe kvm_intel; dmesg says whether the firmware forbids it");
    if (cpu_flag(facts.files, "svm"))
      return wrong("no /dev/kvm", "modprobe kvm_amd; dmesg says whether the firmware forbids it");
    return wrong("no /dev/kvm, and the processor shows no virtualisation",
                 "switch it on in the firmware, or in the outer hypervisor (nested); without it "
                 "virtual machines are emulated, many times slower");
  }
  const auto qemu = qemu_account(facts);
  if (!qemu) return right("there is /dev/kvm");
  if (!facts.files.may_use(*qemu, "/dev/kvm", 6))
    return wrong("user " + qemu->name + " may not use /dev/kvm",
                 "adduser " + qemu->name + " kvm; systemctl restart libvirtd");
  return right("user " + qemu->name + " may use /dev/kvm");
}

Verdict memory(const HostFacts& facts) {
  const auto available = meminfo(facts.files, "MemAvailable");
  if (!available) return skipped("/proc/meminfo cannot be read");
  const auto* defaults = facts.info ? field(*facts.info, "vgpu_defaults") : nullptr;
  const uint64_t region = defaults ? count(*defaults, "region_bytes") : 0;
  if (region == 0) return skipped("sluiced was not reached");
  const std::string room = mebibytes(*available << 10) + " available";
  if ((*available << 10) < region)
    return wrong(room + "; the shared memory of one vGPU may grow to " + mebibytes(region));
  return right(room);
}

Verdict shm(const HostFacts& facts) {
  // The software GPU's file is sparse: what it has not got yet must still fit.
  const auto* device = facts.info ? field(*facts.info, "device") : nullptr;
  const std::string soft = device ? text(*device, "soft_gpu_file") : "";
  const auto file = soft.empty() ? std::nullopt : facts.files.status(soft);
  if (file) {
    const auto has = static_cast<uint64_t>(file->st_blocks) * 512;
    const auto all = static_cast<uint64_t>(file->st_size);
    const auto room = facts.files.free_bytes(soft);
    if (room && all > has && *room < all - has)
      return wrong("the software GPU may grow by " + mebibytes(all - has) + ", and " +
                       soft.substr(0, soft.rfind('/')) + " has " + mebibytes(*room),
                   "make device.soft_memory smaller, set device.soft_file to a larger tmpfs, or: "
                   "mount -o remount,size=SIZE /run");
  }
  const auto room = facts.files.free_bytes("/dev/shm");
  if (!room) return wrong("/dev/shm is not there", "mount -t tmpfs tmpfs /dev/shm");
  if (*room < doctor_limits::kLeastShmBytes) return wrong("/dev/shm has " + mebibytes(*room));
  return right("/dev/shm has " + mebibytes(*room));
}

}  // namespace sluice::cli::checks
