// SPDX-License-Identifier: Apache-2.0
// sluicectl: the admin command line. Parses, connects, calls one command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>

#include "mediator/base/limits.h"
#include "mediator/base/parse_commands.h"
#include "mediator/cli/attach.h"
#include "mediator/cli/commands.h"
#include "mediator/cli/doctor/doctor.h"
#include "mediator/cli/waiting.h"

namespace limits = sluice::limits;
using namespace sluice::cli;

namespace {

// sluiced answers within milliseconds. Less: a host that swaps has no answers. More: a sluiced that
// is stopped is noticed later.
constexpr int kTimeoutSeconds = 60, kMostTimeoutSeconds = 86'400;
// Of `top`. A number below 0 would be taken for one that nobody waits for.
constexpr uint64_t kMostRounds = 1'000'000'000;

// Defines the commands and their options, and holds what they were given.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.fallthrough();  // --json, --socket and --timeout may also stand behind the command
    app_.add_option("--socket", socket_, "admin socket")
        ->envname("SLUICE_ADMIN_SOCKET")
        ->capture_default_str();
    app_.add_option("--timeout", timeout_s_,
                    "how long to wait for an answer of sluiced or libvirt, seconds")
        ->check(CLI::Range(1, kMostTimeoutSeconds))
        ->capture_default_str();
    app_.add_flag("--json", json_, "print the answer as JSON");
    app_.set_version_flag("--version", "sluicectl " SLUICE_VERSION);
    add_create();
    add_delete();
    add_list();
    add_show();
    add_set();
    add_attach();
    add_detach();
    add_reserve();
    add_save_and_restore();
    add_groups();
    add_top();
    add_events();
    add_facts();
    add_doctor();
    add_metrics();
  }

  // The exit status.
  int run(int argc, char** argv) {
    try {
      sluice::parse_commands(app_, argc, argv);
    } catch (const CLI::ParseError& e) {
      return app_.exit(e);
    }
    if (is_doctor_) {
      doctor_.admin_socket = socket_;
      doctor_.version = SLUICE_VERSION;
      doctor_.timeout_s = timeout_s_;
      doctor_.json = json_;
      const int status = doctor(doctor_);
      return status ? status : exit_status(all_written());
    }
    const auto done = execute();
    return exit_status(done ? all_written() : done);
  }

 private:
  using Run = std::function<sluice::Result<void>(sluice::AdminClient&)>;

  static int exit_status(const sluice::Result<void>& done) {
    if (done) return 0;
    std::fprintf(stderr, "sluicectl: %s\n", done.error().message.c_str());
    return 1;
  }

  sluice::Result<void> execute() {
    attach_.timeout_s = timeout_s_;
    if (without_sluiced_) return detach(attach_, [this] { return connect(); });
    auto client = connect();
    return client ? run_(*client) : sluice::Result<void>(client.error());
  }

  sluice::Result<sluice::AdminClient> connect() const {
    return sluice::AdminClient::connect(socket_, timeout_s_);
  }

  // A command that `run` carries out when sluiced is connected.
  CLI::App* add(const char* name, const char* what, Run run) {
    CLI::App* cmd = app_.add_subcommand(name, what);
    cmd->callback([this, run = std::move(run)] { run_ = run; });
    return cmd;
  }

  void add_limits(CLI::App* to, LimitOptions& o) {
    to->add_option("--latency", o.latency,
                   "low (goes first within its share), normal or batch; the share stays")
        ->check(CLI::IsMember({"low", "normal", "batch"}));
    to->add_option("--target-p99-us", o.target_p99_us,
                   "target for the P99 of its waits below its share, us; 0: none")
        ->check(CLI::Range(uint32_t{0}, limits::kMaxTargetUs));
    to->add_option("--min", o.min, "percent of the GPU that is reserved for it; 0: none")
        ->check(CLI::Range(0.0, 100.0));
    to->add_option("--max", o.max, "percent of the GPU that it may have; 0: no cap")
        ->check(CLI::Range(0.0, 100.0));
    to->add_option("--group", o.group, "the group that it is in; '': none");
  }

  void add_create() {
    CreateOptions& c = create_;
    auto* cmd = app_.add_subcommand("create", "make a vGPU");
    cmd->add_option("name", c.name, kVgpuName);
    cmd->add_option("--domain-xml", c.domain_xml,
                    "take name, socket, weight and memory from a libvirt domain "
                    "XML ('-': stdin)");
    cmd->add_option("--weight", c.weight, kWeight)->check(weights_);
    cmd->add_option("--memory", c.memory, "limit of device memory, for example 8G");
    cmd->add_option("--mode", c.mode, "refuse a host that is not in this mode")
        ->check(CLI::IsMember({"strict", "shared"}));
    cmd->add_option("--priority", c.priority, kPriority)->check(priorities_);
    add_limits(cmd, c.limits);
    cmd->add_option("--vgpu-socket", c.socket, "path of the socket that QEMU connects to");
    cmd->add_option("--slots", c.slots, "guest processes that may use it at once")
        ->check(CLI::Range(1, SLUICE_MAX_SLOTS));
    cmd->add_option("--region", c.region,
                    "size of the memory shared with the guest, a power of two, for example 256M");
    cmd->callback([this] {
      if (create_.name.empty() && create_.domain_xml.empty())
        throw CLI::RequiredError("name or --domain-xml");
      run_ = [this](sluice::AdminClient& a) { return create(a, create_, json_); };
    });
  }

  void add_delete() {
    add("delete", "end a vGPU's sessions and remove it",
        [this](sluice::AdminClient& a) { return remove(a, name_, json_); })
        ->add_option("name", name_, kVgpuName)
        ->required();
  }

  void add_list() {
    auto* cmd = add("list", "all vGPUs, and libvirt's domains",
                    [this](sluice::AdminClient& a) { return list(a, list_, json_); });
    auto* only_vgpus =
        cmd->add_flag("--vgpus", list_.vgpus, "the vGPUs only; asks libvirt nothing");
    cmd->add_flag("--domains", list_.domains, "the domains only")->excludes(only_vgpus);
    cmd->add_option("--connect", list_.uri, kWhichLibvirt);
  }

  void add_show() {
    add("show", "one vGPU and its sessions",
        [this](sluice::AdminClient& a) { return show(a, name_, json_); })
        ->add_option("name", name_, kVgpuName)
        ->required();
  }

  void add_set() {
    auto* cmd = add("set", "change a vGPU, from the next scheduling decision on",
                    [this](sluice::AdminClient& a) { return set(a, set_, json_); });
    cmd->add_option("name", set_.name, kVgpuName)->required();
    cmd->add_option("--weight", set_.weight, kWeight)->check(weights_);
    cmd->add_option("--memory", set_.memory, "limit of device memory, for example 8G; 0: none");
    cmd->add_option("--priority", set_.priority, kPriority)->check(priorities_);
    add_limits(cmd, set_.limits);
  }

  void add_domain(CLI::App* to) {
    to->add_option("domain", attach_.domain, "a libvirt domain's name")->required();
    to->add_option("--connect", attach_.uri, kWhichLibvirt);
  }
  void add_print(CLI::App* to) {
    to->add_flag("--print", attach_.print_only, "print the XML, change nothing");
  }
  void add_live(CLI::App* to) {
    to->add_flag("--live", attach_.live, "change the running domain, until it is shut off");
  }
  void add_no_iommu(CLI::App* to) {
    to->add_flag("--no-iommu", attach_.no_iommu, "add no virtual IOMMU: the guest polls");
  }

  void add_attach() {
    AttachOptions& o = attach_;
    auto* cmd = add("attach", "give a libvirt domain a vGPU, from its next start on",
                    [this](sluice::AdminClient& a) { return attach(a, attach_); });
    add_live(cmd);
    add_domain(cmd);
    add_print(cmd);
    cmd->add_option("--weight", o.weight, kWeight)->check(weights_);
    cmd->add_option("--memory", o.memory, "limit of device memory, for example 8G");
    cmd->add_option("--priority", o.priority, kPriority)->check(priorities_);
    cmd->add_option("--latency", o.latency,
                    "low (goes first within its share), normal or batch; the share stays")
        ->check(CLI::IsMember({"low", "normal", "batch"}));
    cmd->add_option("--min", o.min, "percent of the GPU that is reserved for it")
        ->check(CLI::Range(0, 100));
    cmd->add_option("--max", o.max, "percent of the GPU that it may have")
        ->check(CLI::Range(0, 100));
    cmd->add_option("--group", o.group, "the group that it is in");
    cmd->add_option("--mode", o.mode, "refuse a host that is not in this mode")
        ->check(CLI::IsMember({"strict", "shared"}));
    cmd->add_option("--slots", o.slots, "guest processes that may use it at once; default 16")
        ->check(CLI::Range(1, SLUICE_MAX_SLOTS));
    add_no_iommu(cmd);
  }

  void add_detach() {
    auto* cmd = app_.add_subcommand("detach", "take the vGPU out of a libvirt domain");
    add_domain(cmd);
    add_print(cmd);
    add_live(cmd);
    cmd->callback([this] { without_sluiced_ = true; });
  }

  void add_reserve() {
    auto* cmd = add("reserve", "make room for 'attach --live', from a domain's next start on",
                    [this](sluice::AdminClient& a) { return reserve(a, attach_); });
    add_domain(cmd);
    add_print(cmd);
    add_no_iommu(cmd);
  }

  void add_save_and_restore() {
    auto* cmd = add("save", "detach a domain's vGPU and save the domain (virsh managedsave)",
                    [this](sluice::AdminClient& a) { return save(a, attach_); });
    add_domain(cmd);
    cmd->add_flag("--force", attach_.force,
                  "even if programs on the GPU end, or the vGPU cannot come back");
    add_domain(add("restore", "start a saved domain and attach the vGPU that it had",
                   [this](sluice::AdminClient& a) { return restore(a, attach_); }));
  }

  void add_groups() {
    GroupOptions& g = group_;
    auto* cmd = add("group", "make or change a group of vGPUs",
                    [this](sluice::AdminClient& a) { return set_group(a, group_, json_); });
    cmd->add_option("name", g.name, "the group's name")->required();
    cmd->add_option("--parent", g.parent, "the group that it is in; '': none");
    cmd->add_option("--weight", g.weight, kWeight)->check(weights_);
    cmd->add_option("--priority", g.priority, "added to the priorities of its members")
        ->check(priorities_);
    cmd->add_option("--min", g.min, "percent of the GPU that is reserved for it; 0: none")
        ->check(CLI::Range(0.0, 100.0));
    cmd->add_option("--max", g.max, "percent of the GPU that it may have; 0: no cap")
        ->check(CLI::Range(0.0, 100.0));
    add("groups", "all groups", [this](sluice::AdminClient& a) { return groups(a, json_); });
  }

  void add_top() {
    auto* cmd = add("top", "who gets how much of the GPU",
                    [this](sluice::AdminClient& a) { return top(a, interval_s_, rounds_, json_); });
    cmd->add_option("--interval", interval_s_, "time between two rounds, seconds")
        ->check(CLI::Range(0.1, 120.0))
        ->capture_default_str();
    cmd->add_option("--count", rounds_, "end after so many rounds")
        ->check(CLI::Range(uint64_t{1}, kMostRounds));
  }

  void add_events() {
    auto* cmd = add("events", "sluiced's last log lines",
                    [this](sluice::AdminClient& a) { return events(a, follow_, limit_, json_); });
    cmd->add_flag("--follow,-f", follow_, "wait for new lines");
    cmd->add_option("--limit", limit_, "so many of the last lines")
        ->check(CLI::Range(1u, unsigned{limits::kMaxEvents}));
  }

  void add_facts() {
    add("policies", "the scheduling policies that sluiced can run",
        [this](sluice::AdminClient& a) { return policies(a, json_); });
    add("info", "sluiced's version, device and policy",
        [this](sluice::AdminClient& a) { return info(a, json_); });
    add("stats", "cumulative counters as JSON; differences describe the time between",
        [this](sluice::AdminClient& a) { return stats(a, json_); });
  }

  void add_doctor() {
    auto* cmd = app_.add_subcommand(
        "doctor", "what is wrong on this host, and what to do; exit status 0: nothing");
    cmd->add_option("--connect", doctor_.uri, kWhichLibvirt);
    cmd->callback([this] { is_doctor_ = true; });
  }

  void add_metrics() {
    add("metrics", "counters and gauges in Prometheus' text format",
        [](sluice::AdminClient& a) { return metrics(a); });
  }

  static constexpr const char* kWhichLibvirt = "libvirt's URI; default qemu:///system";
  static constexpr const char* kVgpuName = "the vGPU's name";
  static constexpr const char* kWeight = "shares of the GPU are the ratio of weights";
  static constexpr const char* kPriority = "strict: a higher one runs first";
  // CLI11 checks numbers here, so that a typing error needs no running sluiced to be found.
  const CLI::Range weights_{limits::kMinWeight, limits::kMaxWeight};
  const CLI::Range priorities_{limits::kMinPriority, limits::kMaxPriority};
  CLI::App app_{"sluicectl: manages the vGPUs of sluiced"};

  std::string socket_ = "/run/sluice/admin.sock", name_;
  int timeout_s_ = kTimeoutSeconds;
  bool json_ = false, follow_ = false;
  double interval_s_ = 1;
  uint64_t rounds_ = 0, limit_ = limits::kMaxEvents;
  CreateOptions create_;
  ListOptions list_;
  SetOptions set_;
  AttachOptions attach_;
  GroupOptions group_;
  DoctorOptions doctor_;

  // What was chosen: a command of sluiced's, or one of the two that also work without it.
  Run run_;
  bool without_sluiced_ = false, is_doctor_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  Waiting::say_as("sluicectl");
  return CommandLine().run(argc, argv);
}
