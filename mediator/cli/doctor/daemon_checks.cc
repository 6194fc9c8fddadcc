// SPDX-License-Identifier: Apache-2.0
// Checks of sluiced itself and of its sockets.
#include <cerrno>

#include "mediator/cli/answer.h"
#include "mediator/cli/doctor/checks.h"

namespace sluice::cli::checks {

std::optional<Account> qemu_account(const HostFacts& facts) {
  for (const char* name : {"libvirt-qemu", "qemu"})
    if (auto account = facts.files.account(name)) return account;
  return std::nullopt;
}

Verdict sluiced(const HostFacts& facts) {
  if (facts.info) {
    return right("runs as process " + text(*facts.info, "pid") + ", policy " +
                 text(*facts.info, "policy"));
  }
  const Error& e = facts.info.error();
  if (e.code == EACCES || e.code == EPERM)
    return wrong(e.message,
                 "use root, or add yourself to the group sluice and log in anew: "
                 "adduser YOU sluice");
  if (e.code == EAGAIN || e.code == ETIMEDOUT)
    return wrong("it does not answer: " + e.message,
                 "journalctl -u sluiced; systemctl restart sluiced ends all vGPUs' sessions");
  return wrong(e.message);
}

Verdict version(const HostFacts& facts) {
  if (!facts.info) return skipped("sluiced was not reached");
  const std::string theirs = text(*facts.info, "version");
  if (theirs == facts.version) return right("sluiced and sluicectl are " + theirs);
  if (text(*facts.info, "ends_when_idle") == "true")
    return right("sluiced is " + theirs + ", sluicectl is " + facts.version +
                 ": sluiced is started anew as soon as no program uses the GPU");
  return wrong("sluiced is " + (theirs.empty() ? "of no known version" : theirs) +
               ", sluicectl is " + facts.version);
}

Verdict admin_socket(const HostFacts& facts) {
  const auto s = facts.files.status(facts.admin_socket);
  if (!s || !S_ISSOCK(s->st_mode)) return skipped("there is no socket " + facts.admin_socket);
  const std::string group = facts.files.group_name(s->st_gid);
  if (s->st_mode & 2)
    return wrong(facts.admin_socket + " may be written by everybody",
                 "set admin.mode = \"0660\" in /etc/sluice/sluice.toml, and restart sluiced");
  if ((s->st_mode & 060) != 060)
    return wrong("its group " + group + " may not use " + facts.admin_socket,
                 "set admin.mode = \"0660\" in /etc/sluice/sluice.toml, and restart sluiced");
  return right(facts.admin_socket + " is for the group " + group);
}

Verdict vgpu_sockets(const HostFacts& facts) {
  if (!facts.vgpus) return skipped("sluiced was not reached");
  const auto& all = rows_of(*facts.vgpus);
  if (all.empty()) return right("no vGPU yet");
  const auto qemu = qemu_account(facts);
  if (!qemu) return skipped("libvirt's QEMU has no user here (libvirt-qemu, qemu)");
  for (const auto& v : all) {
    const std::string socket = text(v, "socket");
    const auto s = facts.files.status(socket);
    if (!s || !S_ISSOCK(s->st_mode))
      return wrong("vGPU " + text(v, "name") + " has no socket " + socket,
                   "sluicectl delete " + text(v, "name") + ", then start its domain again");
    if (!facts.files.may_use(*qemu, socket, 2))
      return wrong("user " + qemu->name + " may not connect to " + socket + ", which is for " +
                   facts.files.group_name(s->st_gid));
  }
  return right("user " + qemu->name + " may connect to all " + std::to_string(all.size()));
}

std::optional<std::string> worker_list(const HostFacts& facts, const char* name) {
  const auto* workers = field(*facts.info, "workers");
  const auto* entries = workers ? field(*workers, name) : nullptr;
  if (!entries || !entries->is_array()) return std::nullopt;
  std::string list;
  for (const auto& e : entries->get_array())
    if (e.is_string()) list += (list.empty() ? "" : "; ") + std::string(e.get_string());
  return list;
}

Verdict walls(const HostFacts& facts) {
  if (!facts.info) return skipped("sluiced was not reached");
  const auto list = worker_list(facts, "missing_walls");
  if (!list) return skipped("sluiced does not say");
  return list->empty() ? right("workers have all their walls") : wrong(*list);
}

Verdict real_time(const HostFacts& facts) {
  const auto* loop = facts.info ? field(*facts.info, "loop") : nullptr;
  if (!loop || !field(*loop, "real_time_refused"))
    return skipped(facts.info ? "sluiced does not say" : "sluiced was not reached");
  const std::string refusal = text(*loop, "real_time_refused"), has = text(*loop, "priority");
  if (refusal.empty())
    return right(has == "nice" || has == "ordinary" ? "not asked for" : "sluiced's loop has it");
  const std::string fact = "sluiced's loop goes by " + has + " priority: " + refusal;
  // Had, and taken away for good when it was used up: only the limit is missing.
  if (count(*loop, "real_time_spent") > 0)
    return wrong(fact,
                 "systemctl edit sluiced: LimitRTPRIO=1 below [Service], then systemctl restart "
                 "sluiced; or real_time = false in /etc/sluice/sluice.toml");
  const std::string status =
      facts.files.read("/proc/" + text(*facts.info, "pid") + "/status").value_or("");
  // A filter of system calls, which sluiced has from its unit only.
  if (status.find("\nSeccomp:\t2") == std::string::npos) return wrong(fact);
  return wrong(fact + ", by its unit or container",
               "systemctl edit sluiced: RestrictRealtime=no below [Service], then systemctl "
               "restart sluiced; or real_time = false in /etc/sluice/sluice.toml");
}

}  // namespace sluice::cli::checks
