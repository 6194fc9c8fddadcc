// SPDX-License-Identifier: Apache-2.0
// The commands of sluicectl, each over one AdminClient. Printed text goes to stdout; what went
// wrong comes back. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mediator/base/result.h"
#include "mediator/cli/admin_client.h"

namespace sluice::cli {

// Beside the weight. Parts of the GPU are in percent.
struct LimitOptions {
  std::optional<std::string> latency, group;
  std::optional<uint32_t> target_p99_us;
  std::optional<double> min, max;
};
struct GroupOptions {
  std::string name;
  std::optional<std::string> parent;
  std::optional<uint32_t> weight, priority;
  std::optional<double> min, max;
};
Result<void> set_group(AdminClient& client, const GroupOptions& options, bool json);
Result<void> groups(AdminClient& client, bool json);

struct CreateOptions {
  std::string name;
  std::optional<uint32_t> weight;
  std::optional<std::string> memory, mode;
  std::optional<uint32_t> priority;
  LimitOptions limits;
  std::optional<std::string> socket;
  std::optional<uint32_t> slots;
  std::optional<std::string> region;
  std::string domain_xml;  // a file, "-": stdin
};

Result<void> create(AdminClient& client, const CreateOptions& options, bool json);
Result<void> remove(AdminClient& client, const std::string& name, bool json);
// Text: the vGPUs, then libvirt's domains, where there is libvirt. JSON: the vGPUs, or with
// `domains` the domains.
struct ListOptions {
  bool domains = false;  // the domains only; an error where libvirt is not reached
  bool vgpus = false;    // the vGPUs only; libvirt is not asked
  std::string uri;       // libvirt's; empty: qemu:///system
};
Result<void> list(AdminClient& client, const ListOptions& options, bool json);
Result<void> show(AdminClient& client, const std::string& name, bool json);
struct SetOptions {
  std::string name;
  std::optional<uint32_t> weight;
  std::optional<std::string> memory;
  std::optional<uint32_t> priority;
  LimitOptions limits;
};
Result<void> set(AdminClient& client, const SetOptions& options, bool json);
// `count` 0: until interrupted; refreshes the screen on a terminal.
Result<void> top(AdminClient& client, double interval_s, uint64_t count, bool json);
Result<void> events(AdminClient& client, bool follow, uint64_t limit, bool json);
Result<void> policies(AdminClient& client, bool json);
Result<void> info(AdminClient& client, bool json);
Result<void> stats(AdminClient& client, bool json);
Result<void> metrics(AdminClient& client);

// Whether all that was printed has left this program. An error: a full disk, as a rule.
Result<void> all_written();

}  // namespace sluice::cli
