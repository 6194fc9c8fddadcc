// SPDX-License-Identifier: Apache-2.0
// The checks of `sluicectl doctor`, each a row of the table in doctor.cc. Pure functions of the
// facts; for the files of this folder only.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "mediator/cli/doctor/doctor.h"

namespace sluice::cli::checks {

// A finding without its name.
struct Verdict {
  Finding::State state;
  std::string fact;
  std::string mend;  // empty: the row's
};
inline Verdict right(std::string fact) { return {Finding::State::kRight, std::move(fact), ""}; }
inline Verdict wrong(std::string fact, std::string mend = "") {
  return {Finding::State::kWrong, std::move(fact), std::move(mend)};
}
inline Verdict skipped(std::string fact) { return {Finding::State::kSkipped, std::move(fact), ""}; }

// The account as which libvirt runs QEMU: the first of libvirt's usual names that this host has.
std::optional<Account> qemu_account(const HostFacts& facts);

// daemon_checks.cc
// What `info` lists of its workers by that name, "a; b"; nothing: sluiced does not say.
std::optional<std::string> worker_list(const HostFacts& facts, const char* name);
Verdict sluiced(const HostFacts& facts);
Verdict version(const HostFacts& facts);
Verdict admin_socket(const HostFacts& facts);
Verdict vgpu_sockets(const HostFacts& facts);
Verdict walls(const HostFacts& facts);
Verdict real_time(const HostFacts& facts);
// host_checks.cc
Verdict device(const HostFacts& facts);
Verdict mps(const HostFacts& facts);
Verdict hmm(const HostFacts& facts);
Verdict cgroup(const HostFacts& facts);
Verdict kvm(const HostFacts& facts);
Verdict memory(const HostFacts& facts);
Verdict shm(const HostFacts& facts);
// libvirt_checks.cc
Verdict libvirtd(const HostFacts& facts);
Verdict hook(const HostFacts& facts);
Verdict events(const HostFacts& facts);
Verdict apparmor(const HostFacts& facts);
Verdict domains(const HostFacts& facts);
Verdict iommu(const HostFacts& facts);
Verdict window(const HostFacts& facts);
Verdict hugepages(const HostFacts& facts);
Verdict save(const HostFacts& facts);
Verdict agents(const HostFacts& facts);

}  // namespace sluice::cli::checks
