// SPDX-License-Identifier: Apache-2.0
#include "mediator/cli/doctor/doctor.h"

#include <cstdio>

#include "mediator/cli/admin_client.h"
#include "mediator/cli/answer.h"
#include "mediator/cli/doctor/checks.h"
#include "mediator/cli/waiting.h"

namespace sluice::cli {
namespace {

struct Check {
  const char* name;  // one word, for scripts; does not change its meaning
  checks::Verdict (*check)(const HostFacts& facts);
  const char* mend;  // where the verdict has none of its own
};

// In the order in which a virtual machine needs them. docs/operating/troubleshooting.md has what
// each is about.
constexpr Check kChecks[] = {
    {"sluiced", checks::sluiced, "systemctl start sluiced; journalctl -u sluiced says why not"},
    {"version", checks::version,
     "systemctl reload sluiced starts the other one as soon as no program uses the GPU, systemctl "
     "restart sluiced at once"},
    {"admin-socket", checks::admin_socket, ""},
    {"vgpu-sockets", checks::vgpu_sockets,
     "set vgpu.socket_group to a group of that user in /etc/sluice/sluice.toml, and restart "
     "sluiced"},
    {"device", checks::device, ""},
    {"mps", checks::mps, "systemctl enable --now sluice-mps; then restart sluiced"},
    {"hmm", checks::hmm,
     "echo 'options nvidia_uvm uvm_disable_hmm=1' >/etc/modprobe.d/sluice-hmm.conf; restart the "
     "host, or reload the module nvidia_uvm while nothing uses the GPU"},
    {"cgroup", checks::cgroup,
     "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line"},
    {"walls", checks::walls,
     "concepts/workers.md in /usr/share/doc/sluice has what each wall needs of the host"},
    {"real-time", checks::real_time,
     "start sluiced as root, with CAP_SYS_NICE in its unit, its AppArmor profile and its "
     "container; "
     "give its cgroup a share of real time where cgroups have one (cpu.rt_runtime_us); or "
     "real_time = false in /etc/sluice/sluice.toml"},
    {"memory", checks::memory, "end other programs, or make vgpu.region smaller"},
    {"shm", checks::shm, "mount -o remount,size=SIZE /dev/shm"},
    {"kvm", checks::kvm, ""},
    {"libvirtd", checks::libvirtd,
     "systemctl start libvirtd; to use it you are root or in the group libvirt"},
    {"hook", checks::hook, "apt install --reinstall sluice; systemctl restart libvirtd"},
    {"events", checks::events, "systemctl enable --now sluice-libvirt-events"},
    {"apparmor", checks::apparmor,
     "put '/run/sluice/vgpu/* rw,' into /etc/apparmor.d/local/abstractions/libvirt-qemu, then "
     "start the domain again"},
    {"domains", checks::domains,
     "shut it off, then start it; where that changes nothing, systemctl restart libvirtd before, "
     "so that it finds the hook"},
    {"iommu", checks::iommu, ""},
    {"window", checks::window,
     "set pcie-root-port.pref64-reserve to that with 'virsh edit', then start it again"},
    {"hugepages", checks::hugepages, "sysctl vm.nr_hugepages=N, for all domains that ask"},
    {"save", checks::save, ""},
    {"agents", checks::agents,
     "in it: apt install ./sluice-guest-agent*.deb; sluice-agent doctor says what it lacks"},
};

HostFacts collect(const DoctorOptions& o) {
  HostFacts facts;
  facts.version = o.version;
  facts.admin_socket = o.admin_socket;
  auto client = AdminClient::connect(o.admin_socket, o.timeout_s);
  if (!client) {
    facts.info = facts.vgpus = Result<json::value>(client.error());
  } else {
    facts.info = client->call("info");
    facts.vgpus = facts.info ? client->call("vgpu.list") : facts.info;
    if (facts.vgpus)
      for (const auto& v : rows_of(*facts.vgpus)) {
        auto one = client->call("vgpu.show", {{"name", text(v, "name")}});
        if (one) facts.shown[text(v, "name")] = *one;
        // One that was deleted meanwhile is left out. A sluiced that went silent is asked no more.
        if (!one && one.error().code == ETIMEDOUT) break;
      }
  }
  const Waiting waiting(kLibvirtAwaited);
  facts.domains = libvirt::list_domains(o.uri);
  return facts;
}

}  // namespace

std::vector<Finding> examine_host(const HostFacts& facts) {
  std::vector<Finding> findings;
  for (const Check& c : kChecks) {
    checks::Verdict v = c.check(facts);
    if (v.state == Finding::State::kWrong && v.mend.empty()) v.mend = c.mend;
    findings.push_back({c.name, v.state, std::move(v.fact), std::move(v.mend)});
  }
  return findings;
}

int doctor(const DoctorOptions& o) {
  const auto findings = examine_host(collect(o));
  const bool wrong = any_wrong(findings);
  std::fputs((o.json ? as_json(findings, !wrong) : as_text(findings)).c_str(), stdout);
  return wrong ? 1 : 0;
}

}  // namespace sluice::cli
