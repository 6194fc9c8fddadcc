// SPDX-License-Identifier: Apache-2.0
// sluice-agent: owns the vGPU of this VM and hands its slots to programs.
#include <grp.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "guest-agent/agent/agent.h"
#include "guest-agent/agent/doctor.h"
#include "guest-agent/agent/handover.h"
#include "guest-agent/agent/kernels.h"
#include "guest-agent/agent/vgpu_device.h"
#include "mediator/base/unix_socket.h"

using namespace sluice;
using namespace sluice::guest;

namespace {

constexpr const char* kAgentSocket = "/run/sluice/agent.sock";

const char* const kUsage =
    R"(usage: sluice-agent [--device ADDRESS] [--socket PATH] [--transport NAME] [--check]
                    [--version]
       sluice-agent --help
       sluice-agent status|doctor [--socket PATH] [--json]
       sluice-agent kernels [--json] PROGRAM [ARGUMENT...]

Owns the vGPU of this virtual machine (a PCI device 1af4:1110) and hands its slots to
programs that use the CUDA driver. Runs in the foreground; needs root.

  --device ADDRESS  the device, such as 0000:01:02.0; otherwise the only, or first, one
  --socket PATH     where programs join; default /run/sluice/agent.sock. Its group is "sluice" with
                    mode 0660 if there is such a group, else everybody may join (mode 0666)
  --transport NAME  vfio: interrupts, needs an IOMMU. sysfs: polling, needs nothing. auto, the
                    default: vfio, and sysfs where there is no IOMMU or no vfio-pci
  --check           print what is there, change nothing; exit 0 if there is a vGPU device
status            whether programs reach the GPU: device, agent, libraries, driver, channel; anybody
                  may ask. --socket: otherwise SLUICE_SOCKET, or the default
doctor            the same, runs a small kernel, and says what to do about what is wrong; both exit
                  0 if all is right, 1 if not
kernels           runs PROGRAM and says which of its kernels can be evicted, which not, why, and
                  what to do; exits with PROGRAM's status
  --json          for scripts
SIGHUP: the program is started anew in the same process, as after an upgrade; programs that use the
GPU go on.
exit status: 0 ended by SIGTERM; 3 no vGPU device; 4 the host refuses, with its reason; 5 no IOMMU
or no vfio-pci, where sysfs does not do; 6 the device is in use; 1 anything else
)";

int fail(const Error& error, int status) {
  std::fprintf(stderr, "sluice-agent: %s\n", error.message.c_str());
  return status;
}

// The service manager's notification protocol (sd_notify(3)): one datagram.
void notify(const char* text) {
  const char* path = ::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t n = std::strlen(path);
  if (n >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, n);
  if (path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket)
    ::sendto(socket.get(), text, std::strlen(text), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + n));
}

Result<Fd> listen_for_programs(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  if (!folder.empty() && ::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    return Error::from_errno("make " + folder);
  const group* sluice_group = ::getgrnam("sluice");
  auto listener = listen_unix(path, SOCK_SEQPACKET, sluice_group != nullptr ? 0660 : 0666);
  if (!listener) return listener;
  if (sluice_group != nullptr &&
      ::chown(path.c_str(), static_cast<uid_t>(-1), sluice_group->gr_gid) != 0)
    return Error::from_errno("give " + path + " to the group sluice");
  return listener;
}

// `status` and `doctor`: arguments from the third on.
int examine_for(const std::string& command, int argc, char** argv) {
  DoctorOptions options;
  const char* from_environment = ::getenv("SLUICE_SOCKET");
  options.socket = from_environment != nullptr ? from_environment : kAgentSocket;
  options.launch = command == "doctor";
  bool json = false;
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--json") {
      json = true;
    } else if (arg == "--socket" && i + 1 < argc) {
      options.socket = argv[++i];
    } else {
      std::fputs(kUsage, stderr);
      return 1;
    }
  }
  std::vector<Finding> findings = examine(options);
  if (command == "status")
    for (Finding& f : findings) f.mend.clear();
  std::fputs((json ? as_json(findings, all_right(findings)) : as_text(findings)).c_str(), stdout);
  return all_right(findings) ? 0 : 1;
}

// `kernels`: arguments from the third on.
int kernels_for(int argc, char** argv) {
  int first = 2;
  const bool json = argc > first && std::strcmp(argv[first], "--json") == 0;
  first += json;
  if (argc <= first || argv[first][0] == '-') {
    std::fputs(kUsage, stderr);
    return 1;
  }
  const auto found = run_for_kernels({argv + first, argv + argc});
  if (!found) return fail(found.error(), 1);
  if (found->status == 126 || found->status == 127)
    std::fprintf(stderr, "sluice-agent: %s: not started, or not found\n", argv[first]);
  std::fputs((json ? as_json(found->kernels) : as_text(found->kernels)).c_str(), stdout);
  return found->status;
}

struct Options {
  std::string device_address, socket = kAgentSocket;
  std::optional<Transport> transport;
  bool check = false;
  Fd inherited;  // the state of the agent whose place this one takes
};

// The exit status, where the arguments end the program.
std::optional<int> parse(int argc, char** argv, Options& o) {
  const auto usage = [](FILE* to, int status) {
    std::fputs(kUsage, to);
    return status;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--check") {
      o.check = true;
    } else if (arg == "--version") {
      std::puts("sluice-agent " SLUICE_VERSION);
      return 0;
    } else if (arg == "--help") {
      return usage(stdout, 0);
    } else if (arg == "--transport" && i + 1 < argc) {
      const std::string name = argv[++i];
      if (name != "auto" && name != "vfio" && name != "sysfs") return usage(stderr, 1);
      o.transport.reset();
      if (name != "auto") o.transport = name == "vfio" ? Transport::kVfio : Transport::kSysfs;
    } else if (arg == "--successor" && i + 1 < argc) {
      o.inherited = Fd(std::atoi(argv[++i]));
    } else if ((arg == "--device" || arg == "--socket") && i + 1 < argc) {
      (arg == "--device" ? o.device_address : o.socket) = argv[++i];
    } else {
      return usage(stderr, 1);
    }
  }
  return {};
}

// `--check`.
int show_devices(const std::string& socket) {
  std::fputs(describe_devices().c_str(), stdout);
  const bool listening = connect_unix(socket, SOCK_SEQPACKET).ok();
  std::printf("agent: %s\n", listening ? ("running, at " + socket).c_str() : "not running");
  return find_vgpu_devices().empty() ? static_cast<int>(DeviceProblem::kNoDevice) : 0;
}

// The first device, or "".
std::string choose_device() {
  const auto found = find_vgpu_devices();
  if (found.size() > 1)
    std::fprintf(stderr, "sluice-agent: %zu vGPU devices, using %s; --device chooses another\n",
                 found.size(), found[0].c_str());
  return found.empty() ? "" : found[0];
}

Fd block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  return Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

struct Serving {
  std::unique_ptr<VgpuDevice> device;
  std::unique_ptr<Agent> agent;
};

// The error's code is the exit status.
Result<Serving> begin(Options& o) {
  if (o.inherited) {
    auto last = read_state(std::move(o.inherited));
    if (!last) return Error{1, last.error().message};
    auto agent = std::make_unique<Agent>(*last->device, std::move(last->state));
    return Serving{std::move(last->device), std::move(agent)};
  }
  if (o.device_address.empty()) o.device_address = choose_device();
  if (o.device_address.empty())
    return Error{static_cast<int>(DeviceProblem::kNoDevice),
                 "no vGPU is attached to this VM (no PCI device 1af4:1110)"};
  auto device = open_vgpu_device(o.device_address, o.transport);
  if (!device) return device.error();
  auto listener = listen_for_programs(o.socket);
  if (!listener) return Error{1, listener.error().message};
  auto agent = std::make_unique<Agent>(**device, std::move(*listener));
  return Serving{std::move(*device), std::move(agent)};
}

// This program's file, by the name that an upgrade gives to the new one.
std::string own_path() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

// Returns only where there is no successor.
void hand_over(Serving& serving, const std::string& program, const Options& o) {
  AgentState state = serving.agent->hand_over();
  const Error error =
      start_successor(program, {program, "--socket", o.socket}, *serving.device, state);
  std::fprintf(stderr, "sluice-agent: no other agent takes over: %s\n", error.message.c_str());
  serving.agent = std::make_unique<Agent>(*serving.device, std::move(state));
}

// Serves programs until a signal.
int serve(Options& o) {
  Fd signal_fd = block_signals();
  const std::string program = own_path();
  const char* verb = o.inherited ? "goes on with " : "";
  auto serving = begin(o);
  if (!serving) return fail(serving.error(), serving.error().code);
  const VgpuDevice& device = *serving->device;
  std::fprintf(stderr, "sluice-agent: %svGPU %s by %s, %u slots, %zu interrupt vectors, at %s\n",
               verb, device.address.c_str(), name_of(device.transport), device.header().slot_count,
               device.transport == Transport::kVfio ? device.vectors.size() : 0, o.socket.c_str());
  notify("READY=1");
  for (bool successor_wanted = false;;) {
    if (auto ok = serving->agent->step(-1, signal_fd.get()); !ok) {
      notify("STOPPING=1");
      return fail(ok.error(), ok.error().code);
    }
    signalfd_siginfo info;
    if (::read(signal_fd.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGHUP) break;
      successor_wanted = true;
    }
    if (successor_wanted && serving->agent->can_hand_over()) {
      successor_wanted = false;
      hand_over(*serving, program, o);
    }
  }
  notify("STOPPING=1");
  ::unlink(o.socket.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && (std::strcmp(argv[1], "status") == 0 || std::strcmp(argv[1], "doctor") == 0))
    return examine_for(argv[1], argc, argv);
  if (argc > 1 && std::strcmp(argv[1], "kernels") == 0) return kernels_for(argc, argv);
  Options o;
  if (const auto ends = parse(argc, argv, o)) return *ends;
  if (o.check) return show_devices(o.socket);
  return serve(o);
}
