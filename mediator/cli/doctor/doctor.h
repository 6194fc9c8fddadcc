// SPDX-License-Identifier: Apache-2.0
// `sluicectl doctor`: each usual problem of a host that is found, with what to do about it.
//
// One row of the table in doctor.cc is one check. A check is a function of the facts that were
// collected before: files below a folder, sluiced's answers, libvirt's domains. So a test can make
// a host that has any one problem.
//
// One thread. Errors are findings, too; nothing here fails. Changes nothing on the host.
#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <string>
#include <vector>

#include "mediator/base/findings.h"
#include "mediator/base/result.h"
#include "mediator/cli/doctor/host_files.h"
#include "mediator/libvirt/api/domains.h"

namespace sluice::cli {

struct HostFacts {
  HostFiles files{""};
  std::string version;  // of this sluicectl
  std::string admin_socket = "/run/sluice/admin.sock";
  // sluiced's answers: info, vgpu.list, and vgpu.show of each by name. An error's code says why
  // there is none: an errno of the connection.
  Result<boost::json::value> info = Error{ENOENT, "not asked"};
  Result<boost::json::value> vgpus = Error{ENOENT, "not asked"};
  std::map<std::string, boost::json::value> shown;
  // Error code ENOENT: libvirt is not installed.
  Result<std::vector<libvirt::ListedDomain>> domains = Error{ENOENT, "not asked"};
};

std::vector<Finding> examine_host(const HostFacts& facts);

struct DoctorOptions {
  std::string admin_socket, uri, version;
  int timeout_s = 0;  // how long to wait for an answer of sluiced's
  bool json = false;
};
// Collects, examines, prints. The result is sluicectl's exit status: 1 if anything is wrong.
int doctor(const DoctorOptions& options);

}  // namespace sluice::cli
