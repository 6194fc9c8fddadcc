// SPDX-License-Identifier: Apache-2.0
// sluicectl: the admin command line. Parses, connects, calls one command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>

#include "mediator/base/limits.h"
#include "mediator/cli/attach.h"
#include "mediator/cli/commands.h"
#include "mediator/cli/doctor/doctor.h"

namespace limits = sluice::limits;
using namespace sluice::cli;

int main(int argc, char** argv) {
  std::string socket = "/run/sluice/admin.sock";
  bool json = false;
  // CLI11 checks numbers here, so that a typing error needs no running sluiced to be found.
  const CLI::Range weights(limits::kMinWeight, limits::kMaxWeight);
  const CLI::Range priorities(limits::kMinPriority, limits::kMaxPriority);
  using Run = std::function<sluice::Result<void>(sluice::AdminClient&)>;
  Run run;

  CLI::App app{"sluicectl: manages the vGPUs of sluiced"};
  app.require_subcommand(1);
  app.fallthrough();  // --json and --socket may also stand behind the command
  app.add_option("--socket", socket, "admin socket")
      ->envname("SLUICE_ADMIN_SOCKET")
      ->capture_default_str();
  app.add_flag("--json", json, "print the answer as JSON");
  app.set_version_flag("--version", "sluicectl " SLUICE_VERSION);

  const auto add_limits = [](CLI::App* to, LimitOptions& o) {
    to->add_option("--latency", o.latency, "length of its turns; the share stays")
        ->check(CLI::IsMember({"low", "normal", "batch"}));
    to->add_option("--target-p99-us", o.target_p99_us, "of its waits below its share; 0: none")
        ->check(CLI::Range(uint32_t{0}, limits::kMaxTargetUs));
    to->add_option("--min", o.min, "percent of the GPU that is reserved for it; 0: none")
        ->check(CLI::Range(0.0, 100.0));
    to->add_option("--max", o.max, "percent of the GPU that it may have; 0: no cap")
        ->check(CLI::Range(0.0, 100.0));
    to->add_option("--group", o.group, "the group that it is in; '': none");
  };
  CreateOptions c;
  auto* cmd = app.add_subcommand("create", "make a vGPU");
  cmd->add_option("name", c.name, "its name");
  cmd->add_option("--domain-xml", c.domain_xml,
                  "take name, socket, weight and memory from a libvirt domain "
                  "XML ('-': stdin)");
  cmd->add_option("--weight", c.weight, "its weight")->check(weights);
  cmd->add_option("--memory", c.memory, "limit of device memory, for example 8G");
  cmd->add_option("--mode", c.mode, "refuse a host of the other mode")
      ->check(CLI::IsMember({"strict", "shared"}));
  cmd->add_option("--priority", c.priority, "for policies that know priorities")->check(priorities);
  add_limits(cmd, c.limits);
  cmd->add_option("--vgpu-socket", c.socket, "path of the socket that QEMU connects to");
  cmd->add_option("--slots", c.slots, "guest processes at once")
      ->check(CLI::Range(1, SLUICE_MAX_SLOTS));
  cmd->add_option("--region", c.region, "size of the shared memory, a power of two");
  cmd->callback([&] {
    if (c.name.empty() && c.domain_xml.empty()) throw CLI::RequiredError("name or --domain-xml");
    run = [&](sluice::AdminClient& a) { return create(a, c, json); };
  });

  std::string name;
  cmd = app.add_subcommand("delete", "end a vGPU's sessions and remove it");
  cmd->add_option("name", name)->required();
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return remove(a, name, json); }; });

  ListOptions li;
  cmd = app.add_subcommand("list", "all vGPUs, and libvirt's domains");
  auto* only_vgpus = cmd->add_flag("--vgpus", li.vgpus, "the vGPUs only; asks libvirt nothing");
  cmd->add_flag("--domains", li.domains, "the domains only")->excludes(only_vgpus);
  cmd->add_option("--connect", li.uri, "libvirt's URI; default qemu:///system");
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return list(a, li, json); }; });

  cmd = app.add_subcommand("show", "one vGPU and its sessions");
  cmd->add_option("name", name)->required();
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return show(a, name, json); }; });

  SetOptions s;
  cmd = app.add_subcommand("set", "change a vGPU; holds from the next decision on");
  cmd->add_option("name", s.name)->required();
  cmd->add_option("--weight", s.weight)->check(weights);
  cmd->add_option("--memory", s.memory, "0: no limit");
  cmd->add_option("--priority", s.priority)->check(priorities);
  add_limits(cmd, s.limits);
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return set(a, s, json); }; });

  AttachOptions at;
  const auto for_domain = [&](CLI::App* to) {
    to->add_option("domain", at.domain, "a libvirt domain's name")->required();
    to->add_option("--connect", at.uri, "libvirt's URI; default qemu:///system");
    to->add_flag("--print", at.print_only, "show the XML, change nothing");
  };
  const auto may_be_live = [&](CLI::App* to) {
    to->add_flag("--live", at.live, "the running domain, until it is shut off");
  };
  cmd = app.add_subcommand("attach", "give a libvirt domain a vGPU, from its next start on");
  may_be_live(cmd);
  for_domain(cmd);
  cmd->add_option("--weight", at.weight, "its weight")->check(weights);
  cmd->add_option("--memory", at.memory, "limit of device memory, for example 8G");
  cmd->add_option("--priority", at.priority)->check(priorities);
  cmd->add_option("--latency", at.latency, "length of its turns; the share stays")
      ->check(CLI::IsMember({"low", "normal", "batch"}));
  cmd->add_option("--min", at.min, "percent of the GPU that is reserved for it")
      ->check(CLI::Range(0, 100));
  cmd->add_option("--max", at.max, "percent of the GPU that it may have")
      ->check(CLI::Range(0, 100));
  cmd->add_option("--group", at.group, "the group that it is in");
  cmd->add_option("--mode", at.mode, "refuse a host of the other mode")
      ->check(CLI::IsMember({"strict", "shared"}));
  cmd->add_option("--slots", at.slots, "guest processes at once")
      ->check(CLI::Range(1, SLUICE_MAX_SLOTS))
      ->capture_default_str();
  const auto may_lack_iommu = [&](CLI::App* to) {
    to->add_flag("--no-iommu", at.no_iommu, "add no virtual IOMMU: the guest polls");
  };
  may_lack_iommu(cmd);
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return attach(a, at); }; });
  bool without_sluiced = false;
  cmd = app.add_subcommand("detach", "take the vGPU out of a libvirt domain");
  for_domain(cmd);
  may_be_live(cmd);
  cmd->callback([&] { without_sluiced = true; });
  cmd =
      app.add_subcommand("reserve", "make room for 'attach --live', from a domain's next start on");
  for_domain(cmd);
  may_lack_iommu(cmd);
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return reserve(a, at); }; });
  const auto for_saving = [&](CLI::App* to) {
    to->add_option("domain", at.domain, "name of the domain")->required();
    to->add_option("--connect", at.uri, "libvirt's URI; default qemu:///system");
  };
  cmd =
      app.add_subcommand("save", "detach a domain's vGPU and save the domain (virsh managedsave)");
  for_saving(cmd);
  cmd->add_flag("--force", at.force, "although programs on the GPU end, or it cannot come back");
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return save(a, at); }; });
  cmd = app.add_subcommand("restore", "start a saved domain and attach the vGPU that it had");
  for_saving(cmd);
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return restore(a, at); }; });

  GroupOptions g;
  cmd = app.add_subcommand("group", "make or change a group of vGPUs");
  cmd->add_option("name", g.name)->required();
  cmd->add_option("--parent", g.parent, "the group that it is in; '': none");
  cmd->add_option("--weight", g.weight)->check(weights);
  cmd->add_option("--priority", g.priority, "added to that of all in it")->check(priorities);
  cmd->add_option("--min", g.min, "percent of the GPU; 0: none")->check(CLI::Range(0.0, 100.0));
  cmd->add_option("--max", g.max, "percent of the GPU; 0: no cap")->check(CLI::Range(0.0, 100.0));
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return set_group(a, g, json); }; });

  cmd = app.add_subcommand("groups", "all groups");
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return groups(a, json); }; });

  double interval_s = 1;
  uint64_t rounds = 0;
  cmd = app.add_subcommand("top", "who gets how much of the GPU");
  cmd->add_option("--interval", interval_s, "seconds")
      ->check(CLI::Range(0.1, 120.0))
      ->capture_default_str();
  cmd->add_option("--count", rounds, "so many times, then end");
  cmd->callback(
      [&] { run = [&](sluice::AdminClient& a) { return top(a, interval_s, rounds, json); }; });

  bool follow = false;
  uint64_t limit = limits::kMaxEvents;
  cmd = app.add_subcommand("events", "sluiced's last log lines");
  cmd->add_flag("--follow,-f", follow, "go on with new ones");
  cmd->add_option("--limit", limit, "the last so many")
      ->check(CLI::Range(1u, unsigned{limits::kMaxEvents}));
  cmd->callback(
      [&] { run = [&](sluice::AdminClient& a) { return events(a, follow, limit, json); }; });

  cmd = app.add_subcommand("policies", "the scheduling policies that sluiced can run");
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return policies(a, json); }; });
  cmd = app.add_subcommand("info", "sluiced's version, device and policy");
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return info(a, json); }; });
  cmd = app.add_subcommand("stats",
                           "cumulative counters as JSON; differences describe the time between");
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return stats(a, json); }; });

  DoctorOptions doc;
  bool is_doctor = false;
  cmd = app.add_subcommand("doctor", "what is wrong on this host, and what to do; 0: nothing");
  cmd->add_option("--connect", doc.uri, "libvirt's URI; default qemu:///system");
  cmd->callback([&] { is_doctor = true; });

  cmd = app.add_subcommand("metrics", "the same and more in Prometheus' text format");
  cmd->callback([&] { run = [&](sluice::AdminClient& a) { return metrics(a); }; });

  CLI11_PARSE(app, argc, argv);
  if (is_doctor) {
    doc.admin_socket = socket;
    doc.version = SLUICE_VERSION;
    doc.json = json;
    return doctor(doc);
  }
  sluice::Result<void> done;
  if (without_sluiced) {
    done = detach(at, [&] { return sluice::AdminClient::connect(socket); });
  } else {
    auto client = sluice::AdminClient::connect(socket);
    done = client ? run(*client) : sluice::Result<void>(client.error());
  }
  if (done) return 0;
  std::fprintf(stderr, "sluicectl: %s\n", done.error().message.c_str());
  return 1;
}
