// SPDX-License-Identifier: Apache-2.0
// Which libvirt domain has which vGPU: sluiced's vGPUs matched with libvirt's domains, for
// `sluicectl list`. Pure: lists in, lists and text out. Any thread.
#pragma once

#include <boost/json/array.hpp>
#include <map>
#include <string>
#include <vector>

#include "mediator/libvirt/api/domains.h"

namespace sluice::cli {

//   the domain   its XML has one   sluiced has one        state
//   any          no                no                     kNone
//   shut off     yes               no, or made by hand    kNextStart
//   runs         yes               yes                    kPresent
//   runs         yes               no                     kLost
//   else                           yes, owned by it       kLeft
enum class VgpuState {
  kNone,
  kNextStart,  // the hook makes it when the domain starts
  kPresent,
  kLost,  // sluiced was restarted, or the vGPU was deleted: its device is dead
  kLeft,  // it is about to be deleted, or the event service does not run
};

struct DomainRow {
  std::string name, uuid;
  std::string state;  // in virsh's words
  VgpuState vgpu_state = VgpuState::kNone;
  std::string vgpu;     // its name; empty: sluiced has none for it
  std::string channel;  // sluiced's state of that vGPU: waiting, connected
  std::string wrong;    // with what of its XML the hook would deny its start; empty: nothing
};

struct DomainList {
  std::vector<DomainRow> domains;                 // in libvirt's order
  std::map<std::string, std::string> by_vgpu;     // a vGPU's name: its domain's
  std::vector<std::string> vgpus_without_domain;  // in sluiced's order
};

// `vgpus`: sluiced's answer to vgpu.list. `sockets`: the folder of the vGPUs' sockets.
DomainList match_domains(const boost::json::array& vgpus,
                         const std::vector<libvirt::ListedDomain>& domains,
                         const std::string& sockets);

std::string domain_table(const DomainList& list);
boost::json::object domains_as_json(const DomainList& list);

}  // namespace sluice::cli
