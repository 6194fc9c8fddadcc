// SPDX-License-Identifier: Apache-2.0
// HostReport: what a spawner's Hello says about the host (mediator/core/spawner_protocol.h): what
// stands between workers and the host, and what can be counted of them. Each line of text is for
// people, "WHAT: why". A value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "mediator/core/spawner_protocol.h"

namespace sluice::io {

struct HostReport {
  std::vector<std::string> missing_walls;   // that this host does not allow
  std::vector<std::string> missing_limits;  // what a worker's cgroup does not limit
  // Why faults of workers are not seen in the kernel's log; empty: they are.
  std::string no_kernel_log = "not asked for";
  // Why workers have no cache of machine code that they share; empty: they have.
  std::string no_code_cache;
  // Why it is not counted for how long workers had no processor; empty: it is.
  std::string no_pressure;
  uint64_t ended_workers = 0;  // that an earlier sluiced had left

  static HostReport from(const spawner_protocol::Packet& hello) {
    return {hello.all("missing"),       hello.all("no-limit"),    hello.one("no-kernel-log"),
            hello.one("no-code-cache"), hello.one("no-pressure"), hello.header.id};
  }
  bool sees_xids() const { return no_kernel_log.empty(); }
  bool lacks(spawner_protocol::Wall wall) const {
    const std::string name =
        std::string(spawner_protocol::kWallNames[static_cast<size_t>(wall)]) + ":";
    return std::any_of(missing_walls.begin(), missing_walls.end(),
                       [&](const std::string& m) { return m.starts_with(name); });
  }
};

}  // namespace sluice::io
