// SPDX-License-Identifier: Apache-2.0
// sluiced's vGPUs as what serves libvirt sees them: which domain owns one, and what can be done to
// it. A vGPU's owner is "libvirt:UUID": the domain's UUID stays when the domain is renamed, and
// sluiced forgets owner and vGPU together. One thread.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/cli/admin_client.h"
#include "mediator/cli/domain_request.h"
#include "mediator/core/domain_xml.h"
#include "mediator/libvirt/limits.h"

namespace sluice::libvirt {

// A vGPU as sluiced lists it.
struct ListedVgpu {
  std::string name, state, socket, owner;
  bool paused = false;                                 // sluiced gives it no turn
  bool waiting() const { return state == "waiting"; }  // no virtual machine has its socket
};
struct VgpuDefaults {
  uint32_t weight = 0;  // 0: sluiced does not say
  std::string latency;
  std::string host_mode;  // strict or shared: of sluiced, not a default
};

class Vgpus {
 public:
  virtual ~Vgpus() = default;
  virtual Result<std::vector<ListedVgpu>> list() = 0;
  virtual Result<VgpuDefaults> defaults() = 0;
  virtual Result<void> create(boost::json::object request) = 0;
  virtual Result<void> set(boost::json::object request) = 0;
  virtual Result<void> remove(const std::string& name) = 0;
};

// Over the admin socket. Connects at the first call, and again after a call that found it broken.
class AdminVgpus final : public Vgpus {
 public:
  explicit AdminVgpus(std::string admin_socket, int timeout_s = limits::kAdminTimeoutSeconds)
      : socket_(std::move(admin_socket)), timeout_s_(timeout_s) {}
  Result<std::vector<ListedVgpu>> list() override;
  Result<VgpuDefaults> defaults() override;
  Result<void> create(boost::json::object request) override;
  Result<void> set(boost::json::object request) override;
  Result<void> remove(const std::string& name) override;

 private:
  Result<boost::json::value> call(const char* method, boost::json::object params);
  std::string socket_;
  int timeout_s_;
  std::optional<AdminClient> client_;
};

// sluiced was reached and refused: asking again changes nothing. (Else: it was not reached.)
inline bool refused(const Error& e) { return e.code < 0; }

// The vGPU of a domain: its own, or one of its name and socket that was created by hand.
const ListedVgpu* vgpu_of(const std::vector<ListedVgpu>& all, const DomainVgpu& domain);

}  // namespace sluice::libvirt
