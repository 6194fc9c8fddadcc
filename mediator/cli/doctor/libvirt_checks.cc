// SPDX-License-Identifier: Apache-2.0
// Checks of libvirt, of what Sluice has installed for it, and of its domains.
#include <cerrno>
#include <functional>
#include <sstream>

#include "mediator/cli/answer.h"
#include "mediator/cli/doctor/checks.h"
#include "mediator/core/names.h"

namespace sluice::cli::checks {
namespace {

using libvirt::DomainParts;
using libvirt::ListedDomain;

// Names of the domains for which `found` holds.
std::string names_of(const std::vector<ListedDomain>& domains,
                     const std::function<bool(const ListedDomain&, const DomainParts&)>& found) {
  std::string names;
  for (const ListedDomain& d : domains)
    if (found(d, libvirt::parts_of(d.xml))) names += (names.empty() ? "" : ", ") + d.name;
  return names;
}

const json::value* vgpu_of(const HostFacts& facts, const ListedDomain& domain) {
  for (const auto& v : rows_of(*facts.vgpus))
    if (text(v, "owner") == "libvirt:" + domain.uuid || text(v, "name") == domain.name) return &v;
  return nullptr;
}

bool installed(const HostFacts& facts) {
  return facts.domains.ok() || facts.domains.error().code != ENOENT;
}
Verdict without_libvirt() { return right("not needed: libvirt is not installed"); }

// The value of KEY="VALUE" in an audit line. It names files and profiles of this host.
std::string audited(const std::string& line, const std::string& key) {
  const std::string start = " " + key + "=\"";
  const size_t at = line.find(start);
  if (at == std::string::npos) return "";
  const size_t from = at + start.size();
  const std::string value = line.substr(from, line.find('"', from) - from);
  return clean_text(value.c_str(), value.size());
}

bool starts_with_any(const std::string& path, const std::vector<std::string>& folders) {
  for (const std::string& f : folders)
    if (path.starts_with(f)) return true;
  return false;
}

// By profile: the last denial of one of our files. A profile that was loaded anew since has no
// denial: libvirt does that at each start of a domain.
std::map<std::string, std::string> denials(const std::string& log,
                                           const std::vector<std::string>& folders) {
  std::map<std::string, std::string> last;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    if (line.find("apparmor=\"STATUS\"") != std::string::npos) {
      last.erase(audited(line, "name"));
    } else if (line.find("apparmor=\"DENIED\"") != std::string::npos) {
      const std::string file = audited(line, "name"), profile = audited(line, "profile");
      const bool ours = profile.find("sluice") != std::string::npos;
      if (ours || starts_with_any(file, folders))
        last[profile] = profile + ": " + audited(line, "operation") + " of " + file;
    }
  }
  return last;
}

// What a shell makes of NAME after it has read the text; `value`, where that does not set it. Lines
// that begin with a blank are in branches of a script.
std::string shell_value(const std::string& text, const std::string& name, std::string value) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name + "=")) continue;
    const std::string set = line.substr(name.size() + 1);
    const bool quoted = set.starts_with('"') || set.starts_with('\'');
    value =
        quoted ? set.substr(1, set.find(set[0], 1) - 1) : set.substr(0, set.find_first_of(" \t;#"));
  }
  return value;
}

}  // namespace

Verdict libvirtd(const HostFacts& facts) {
  if (!installed(facts)) return right("not installed: vGPUs are made with 'sluicectl create'");
  if (!facts.domains) return wrong(facts.domains.error().message);
  const auto with = names_of(*facts.domains, [](auto&, auto& parts) { return parts.vgpu; });
  return right("answers; with a vGPU: " + (with.empty() ? "no domain" : with));
}

Verdict hook(const HostFacts& facts) {
  if (!installed(facts)) return without_libvirt();
  constexpr char kOwn[] = "/etc/libvirt/hooks/qemu.d/sluice", kCommon[] = "/etc/libvirt/hooks/qemu";
  const char* path = kOwn;
  if (!facts.files.exists(kOwn)) {
    const auto common = facts.files.read(kCommon);
    if (!common || common->find("sluice-libvirt-hook") == std::string::npos)
      return wrong(std::string("there is no ") + kOwn);
    path = kCommon;
  }
  const auto s = facts.files.status(path);
  if (!s || !(s->st_mode & 0100))
    return wrong(std::string(path) + " is not executable",
                 std::string("chmod 755 ") + path + "; systemctl restart libvirtd");
  return right(path);
}

Verdict events(const HostFacts& facts) {
  if (!installed(facts)) return without_libvirt();
  if (facts.files.runs("sluice-libvirt-events")) return right("sluice-libvirt-events runs");
  return wrong("sluice-libvirt-events does not run: changes of running domains are not followed");
}

Verdict apparmor(const HostFacts& facts) {
  if (!(facts.files.read("/sys/module/apparmor/parameters/enabled").value_or("").starts_with("Y")))
    return right("off");
  const auto log = facts.files.read_log("/dev/kmsg");
  if (!log) return skipped("the kernel's log cannot be read; call 'sluicectl doctor' as root");
  std::vector<std::string> folders = {"/run/sluice/"};
  if (facts.info && !text(*facts.info, "runtime_dir").empty())
    folders.push_back(text(*facts.info, "runtime_dir") + "/");
  const auto denied = denials(*log, folders);
  if (denied.empty()) return right("on; it has denied nothing of Sluice");
  std::string all;
  for (const auto& [profile, what] : denied) all += (all.empty() ? "denied " : "; ") + what;
  return wrong(all);
}

Verdict domains(const HostFacts& facts) {
  if (!installed(facts)) return without_libvirt();
  if (!facts.domains || !facts.vgpus) return skipped("libvirtd or sluiced was not reached");
  const auto lost = names_of(*facts.domains, [&](auto& d, auto& parts) {
    return d.runs() && parts.vgpu && !vgpu_of(facts, d);
  });
  if (!lost.empty()) return wrong("runs without the vGPU of its XML: " + lost);
  return right("each one that runs has the vGPU of its XML");
}

Verdict iommu(const HostFacts& facts) {
  if (!installed(facts)) return without_libvirt();
  if (!facts.domains) return skipped("libvirtd was not reached");
  const auto without =
      names_of(*facts.domains, [](auto&, auto& parts) { return parts.vgpu && !parts.iommu; });
  if (!without.empty())
    return right(
        "without a virtual IOMMU, so that the guest polls (detach it and attach it anew for "
        "one): " +
        without);
  return right("each domain with a vGPU has one");
}

Verdict window(const HostFacts& facts) {
  if (!installed(facts)) return without_libvirt();
  if (!facts.domains) return skipped("libvirtd was not reached");
  const auto* defaults = facts.info ? field(*facts.info, "vgpu_defaults") : nullptr;
  const uint64_t region = defaults ? count(*defaults, "region_bytes") : 0;
  if (region == 0) return skipped("sluiced was not reached");
  const auto small = names_of(*facts.domains, [&](auto&, auto& parts) {
    return parts.reserved && parts.window_bytes < 2 * region;
  });
  if (!small.empty())
    return wrong("the reserved root port has less room than 'attach --live' needs (" +
                 std::to_string(region >> 19) + " MiB): " + small);
  return right("each root port that was reserved has room");
}

Verdict hugepages(const HostFacts& facts) {
  if (!installed(facts)) return without_libvirt();
  if (!facts.domains) return skipped("libvirtd was not reached");
  const auto wanting =
      names_of(*facts.domains, [](auto&, auto& parts) { return parts.vgpu && parts.hugepages; });
  if (wanting.empty()) return right("no domain with a vGPU asks for them");
  std::istringstream in(facts.files.read("/proc/meminfo").value_or(""));
  for (std::string name; in >> name;) {
    uint64_t pages = 0;
    if (name != "HugePages_Total:") continue;
    if (in >> pages && pages > 0) return right(std::to_string(pages) + " pages");
  }
  return wrong("this host has none, and they are asked for by " + wanting);
}

Verdict save(const HostFacts& facts) {
  if (!installed(facts)) return without_libvirt();
  if (!facts.domains) return skipped("libvirtd was not reached");
  const auto with = names_of(*facts.domains, [](auto&, auto& parts) { return parts.vgpu; });
  if (with.empty()) return right("no domain has a vGPU, which cannot be saved");
  // Debian's script shuts domains down where nothing is set, that of libvirt itself saves them.
  std::string at_shutdown, set_in = "/etc/sysconfig/libvirt-guests";
  for (const char* script :
       {"/usr/lib/libvirt/libvirt-guests.sh", "/usr/libexec/libvirt-guests.sh"})
    at_shutdown =
        shell_value(facts.files.read(script).value_or(""), "ON_SHUTDOWN", std::move(at_shutdown));
  for (const char* file : {"/etc/default/libvirt-guests", "/etc/sysconfig/libvirt-guests"})
    if (const auto settings = facts.files.read(file)) {
      at_shutdown = shell_value(*settings, "ON_SHUTDOWN", std::move(at_shutdown));
      set_in = file;
    }
  constexpr char kEnabled[] = "/etc/systemd/system/multi-user.target.wants/libvirt-guests.service";
  if (at_shutdown == "suspend" && !facts.files.link(kEnabled).empty())
    return wrong(
        "libvirt-guests saves domains when the host is shut down, and ends those with a "
        "vGPU, which QEMU does not save: " +
            with,
        "ON_SHUTDOWN=shutdown in " + set_in);
  return right("QEMU saves no domain with a vGPU; 'sluicectl save' does, without it: " + with);
}

Verdict agents(const HostFacts& facts) {
  if (!facts.vgpus) return skipped("sluiced was not reached");
  std::string unseen, silent, other;
  size_t connected = 0;
  for (const auto& [name, v] : facts.shown) {
    if (text(v, "state") != "connected") continue;
    ++connected;
    const auto* agent = field(v, "agent");
    if (!agent) continue;
    if (count(*agent, "epoch") == 0)
      unseen += (unseen.empty() ? "" : ", ") + name;
    else if (truth(*agent, "silent"))
      silent += (silent.empty() ? "" : ", ") + name;
    else if (const std::string release = text(*agent, "release"); release != facts.version)
      other +=
          (other.empty() ? "" : ", ") + name + " (" + (release.empty() ? "unknown" : release) + ")";
  }
  if (!unseen.empty()) return wrong("no agent was seen in the guest of " + unseen);
  if (!silent.empty())
    return wrong("the agent is silent in the guest of " + silent,
                 "virsh domstate: it may be paused; in it: journalctl -u sluice-guest-agent");
  if (!other.empty())
    return right("each connected guest has one; of another release than this host, which works: " +
                 other);
  return right(connected ? "each connected guest has one" : "no guest is connected");
}

}  // namespace sluice::cli::checks
