// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/doctor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "abi/channel.h"
#include "guest-agent/agent/driver_check.h"
#include "guest-agent/agent/sysfs.h"
#include "guest-agent/agent/vgpu_device.h"
#include "mediator/base/clock.h"
#include "mediator/base/unix_socket.h"

namespace sluice::guest {
namespace {

using State = Finding::State;

// More than all findings of a child; what it writes is bounded by this.
constexpr size_t kMostReport = 16384;

Finding device_finding(const DoctorOptions& options, bool answers) {
  Finding f{"device", State::kRight, "", ""};
  const auto devices = find_vgpu_devices(options.sysfs);
  for (const std::string& device : devices) f.fact += (f.fact.empty() ? "" : ", ") + device;
  if (!devices.empty()) {
    f.fact = "PCI device " + f.fact;
  } else if (answers) {
    f.fact = "none; a local socket is in its place";
  } else {
    f.state = State::kWrong;
    f.fact = "no PCI device 1af4:1110";
    f.mend = "on the host: sluicectl attach DOMAIN; then start the virtual machine again";
  }
  return f;
}

Finding agent_finding(const std::string& socket, const Result<Fd>& connected) {
  Finding f{"agent", State::kRight, "answers at " + socket, ""};
  if (connected) return f;
  f.state = State::kWrong;
  f.fact = connected.error().message;
  switch (connected.error().code) {
    case EACCES:
    case EPERM:
      f.mend = "add yourself to the group of the socket: adduser YOU sluice; log in anew";
      break;
    default:
      f.mend =
          "systemctl start sluice-guest-agent; journalctl -u sluice-guest-agent says why it does "
          "not run";
  }
  return f;
}

// Host and guest are upgraded at different times.
Finding host_finding(const DoctorOptions& options, bool answers) {
  Finding f{"host", answers ? State::kRight : State::kSkipped, "no device", ""};
  const auto devices = find_vgpu_devices(options.sysfs);
  if (devices.empty()) return f;
  const auto header = read_channel_header(devices[0], options.sysfs);
  f.fact = answers ? "checked by the agent, which has the device to itself" : "cannot be read now";
  if (!header || header->magic != SLUICE_CHANNEL_MAGIC) return f;
  f.state = State::kRight;
  const std::string release = host_release(*header);
  f.fact = "release " + release + ", channel " + std::to_string(header->version);
  if (sluice_channel_common(header->version, header->oldest) == 0) {
    f.state = State::kWrong;
    f.fact += "; this guest is " SLUICE_VERSION ", channel " +
              std::to_string(SLUICE_CHANNEL_VERSION) + ": they do not work together";
    f.mend = header->version < SLUICE_CHANNEL_VERSION
                 ? "on the host: upgrade the package sluice"
                 : "upgrade this guest's package sluice-guest-agent";
  } else if (release != SLUICE_VERSION) {
    f.fact += "; this guest is " SLUICE_VERSION ", which works";
  }
  return f;
}

// How the agent has the device, and what that costs.
Finding transport_finding(const DoctorOptions& options, bool answers) {
  Finding f{"transport", State::kSkipped, "nobody answers", ""};
  const auto devices = find_vgpu_devices(options.sysfs);
  if (!answers) return f;
  f.state = State::kRight;
  f.fact = "a local socket: event descriptors";
  if (devices.empty()) return f;
  f.fact = link_name(device_folder(options.sysfs, devices[0]) + "/driver") == "vfio-pci"
               ? "vfio: interrupts"
               : "sysfs: no interrupts, so programs poll. A wait ends up to 0.3 ms late, and takes "
                 "about 6 % of a processor. For interrupts: <iommu> in the domain's XML, and "
                 "intel_iommu=on for this kernel";
  return f;
}

// What the child has found, a line each: name, state, fact, mend between tabs.
std::vector<Finding> parse(const std::string& report) {
  std::vector<Finding> findings;
  size_t at = 0;
  for (size_t end; (end = report.find('\n', at)) != std::string::npos; at = end + 1) {
    std::string parts[4];
    size_t from = at;
    for (std::string& part : parts) {
      const size_t to = std::min(report.find('\t', from), end);
      part = report.substr(std::min(from, end), to - std::min(from, end));
      from = to + 1;
    }
    findings.push_back({parts[0],
                        parts[1] == "right"   ? State::kRight
                        : parts[1] == "wrong" ? State::kWrong
                                              : State::kSkipped,
                        parts[2], parts[3]});
  }
  return findings;
}

// Reads until the child has closed its end; false: the deadline was first.
bool read_report(int from, int deadline_s, std::string* report) {
  const uint64_t end_ns = monotonic_ns() + uint64_t{1'000'000'000} * deadline_s;
  for (;;) {
    const uint64_t now = monotonic_ns();
    if (now >= end_ns) return false;
    pollfd ready{from, POLLIN, 0};
    const int n = ::poll(&ready, 1, static_cast<int>((end_ns - now) / 1'000'000) + 1);
    if (n < 0 && errno != EINTR) return true;
    if (n <= 0) continue;
    char piece[1024];
    const ssize_t got = ::read(from, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || report->size() > kMostReport) return true;
    report->append(piece, static_cast<size_t>(got));
  }
}

// The checks that load the driver, in a child. Those that it did not come to are skipped; the one
// in which it hung or died is wrong.
std::vector<Finding> driver_findings(const DoctorOptions& options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return {{"libcuda", State::kWrong, std::strerror(errno), "close other programs"}};
  Fd from(ends[0]), to(ends[1]);
  ::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return {{"libcuda", State::kWrong, std::strerror(errno), "close other programs"}};
  if (child == 0) {
    ::setenv("SLUICE_SOCKET", options.socket.c_str(), 1);
    check_driver(options.driver, options.launch, to.get());
    ::_exit(0);
  }
  to.reset();
  std::string report;
  const bool closed = read_report(from.get(), options.deadline_s, &report);
  if (!closed) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::vector<Finding> findings = parse(report);
  bool died = !closed || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  const auto known = [&](const char* name) {
    return std::any_of(findings.begin(), findings.end(),
                       [&](const Finding& f) { return f.name == name; });
  };
  for (const char* name : {"libcuda", "driver", "channel", "runtime", "launch"}) {
    if (known(name) || (!options.launch && std::strcmp(name, "launch") == 0)) continue;
    Finding f{name, State::kSkipped, "not checked", ""};
    if (died) {
      f.state = State::kWrong;
      f.fact = !closed ? "no answer within " + std::to_string(options.deadline_s) + " s"
                       : "the check died of signal " + std::to_string(WTERMSIG(status));
      f.mend = "on the host: sluicectl show and sluicectl events say who has the GPU, and why";
      died = false;
    }
    findings.push_back(f);
  }
  return findings;
}

}  // namespace

std::vector<Finding> examine(const DoctorOptions& options) {
  const auto connected = connect_unix(options.socket, SOCK_SEQPACKET);
  std::vector<Finding> findings = {
      device_finding(options, connected.ok()), agent_finding(options.socket, connected),
      host_finding(options, connected.ok()), transport_finding(options, connected.ok())};
  for (Finding& f : driver_findings(options)) findings.push_back(std::move(f));
  return findings;
}

}  // namespace sluice::guest
