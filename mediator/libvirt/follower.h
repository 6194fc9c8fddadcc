// SPDX-License-Identifier: Apache-2.0
// The follower keeps sluiced's vGPUs in step with running domains, where libvirt runs no hook:
//
//   metadata changed    what changed in <sluice:vgpu> is set on the vGPU; settings that are gone
//                       fall back to the defaults. What cannot be read or is refused is reported
//                       once, and changes nothing. `mode` is of the start; that it waits for the
//                       next one is reported.
//   domain paused       its vGPU gets no turn until the domain goes on
//   domain ended        a vGPU that it owns and that no virtual machine is connected to is deleted,
//                       when two polls that are `grace_ns` apart find it so: the hook does it
//                       earlier, and a domain that is about to start has no connection yet
//   device detached     likewise
//   vGPU gone           reported when two polls that are `grace_ns` apart find it so: a domain that
//                       goes back to a snapshot has none between its end and its start
//
// A setting changed with 'sluicectl set' stays until the domain's metadata changes that setting.
// Both sides are interfaces; errors of one domain are logged and keep the others waiting for
// nothing. One thread, no clock: time is an argument.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "mediator/base/result.h"
#include "mediator/libvirt/api/events.h"
#include "mediator/libvirt/vgpus.h"

namespace sluice::libvirt {

class Follower {
 public:
  struct Options {
    std::string sockets = "/run/sluice/vgpu";  // where sluiced makes the sockets of vGPUs
    uint64_t grace_ns = 10'000'000'000;
  };
  Follower(Vgpus& vgpus, Options options) : vgpus_(vgpus), options_(std::move(options)) {}

  // Domains of which libvirt reported something. Errors: sluiced cannot be reached; try again.
  Result<void> changed(RunningDomains& domains, const std::set<std::string>& uuids,
                       uint64_t now_ns);
  // All running domains. At the first call their settings count as applied: they may have been
  // changed with 'sluicectl set' since.
  Result<void> all(RunningDomains& domains, uint64_t now_ns);
  // Deletes vGPUs that are left over. true: some may be, or a domain may have lost its vGPU; look
  // again after `grace_ns`.
  Result<bool> collect(RunningDomains& domains, uint64_t now_ns);

 private:
  Result<void> follow(RunningDomains& domains, const std::vector<ListedVgpu>& vgpus,
                      const std::string& uuid, uint64_t now_ns);
  Result<void> follow_pause(const DomainVgpu& domain, const ListedVgpu& vgpu, bool paused,
                            const std::string& uuid);
  Result<void> follow_settings(const DomainVgpu& domain, const ListedVgpu& vgpu,
                               const std::string& uuid);
  Result<boost::json::object> settings(const DomainVgpu& domain);
  void mode_waits(const DomainVgpu& domain);
  void lost(const DomainVgpu& domain, const std::string& uuid, uint64_t now_ns);
  // Once per domain and reason.
  void report(const std::string& uuid, const std::string& domain, const std::string& reason);

  Vgpus& vgpus_;
  const Options options_;
  bool seen_all_ = false;
  std::map<std::string, boost::json::object> applied_;  // by UUID
  std::map<std::string, std::string> reported_;         // by UUID: the last reason
  std::map<std::string, uint64_t> left_since_;          // vGPUs without a domain, by name
  std::map<std::string, uint64_t> lost_since_;          // domains without their vGPU, by UUID
  std::string host_mode_;                               // sluiced's; empty: it does not say
};

}  // namespace sluice::libvirt
