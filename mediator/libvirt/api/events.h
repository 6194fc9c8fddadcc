// SPDX-License-Identifier: Apache-2.0
// The running domains of one libvirtd, and which of them changed. Reads only: the connection is a
// read-only one. libvirt's events are hints here: an event puts its domain's UUID on a list, and
// the reader asks libvirt for the domain's state. So no order of events matters, and a lost one is
// made good by the next poll of all domains. One thread; one at a time in a process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::libvirt {

struct Library;

struct RunningDomain {
  std::string name, xml;  // the XML that it runs with
  bool paused = false;    // by 'virsh suspend', or by its guest
};

// What the follower (mediator/libvirt/follower.h) asks of libvirt.
class RunningDomains {
 public:
  virtual ~RunningDomains() = default;
  // nullopt: there is none, or it does not run.
  virtual Result<std::optional<RunningDomain>> find(const std::string& uuid) = 0;
  virtual Result<std::set<std::string>> uuids() = 0;
};

class DomainEvents final : public RunningDomains {
 public:
  // `uri` empty: qemu:///system. Waits for a libvirtd that does not answer, and calls `silent` with
  // that once, after limits::kSilentSeconds.
  static Result<std::unique_ptr<DomainEvents>> open(
      const std::string& uri, const std::function<void(const Error&)>& silent);
  ~DomainEvents() override;
  DomainEvents(const DomainEvents&) = delete;
  DomainEvents& operator=(const DomainEvents&) = delete;

  // Until something happened or `ms` passed. false: the connection is lost.
  bool wait(int ms);
  // UUIDs of domains that changed since the last call: started, ended, other metadata or devices.
  std::set<std::string> take_changed();

  Result<std::optional<RunningDomain>> find(const std::string& uuid) override;
  Result<std::set<std::string>> uuids() override;

 private:
  DomainEvents() = default;
  const Library* lib_ = nullptr;
  void* connection_ = nullptr;
  std::vector<int> callbacks_;
};

}  // namespace sluice::libvirt
