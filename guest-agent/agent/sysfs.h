// SPDX-License-Identifier: Apache-2.0
// Small reads and writes of sysfs, and errors with a DeviceProblem. One thread.
#pragma once

#include <string>
#include <vector>

#include "guest-agent/agent/vgpu_device.h"

namespace sluice::guest {

Error problem(DeviceProblem kind, std::string message);
// With errno's text.
Error problem_errno(DeviceProblem kind, const std::string& what);

std::string device_folder(const std::string& sysfs, const std::string& address);
// The first line; empty: there is no such file.
std::string read_line(const std::string& path);
Result<void> write_line(const std::string& path, const std::string& text);
// The last component of what a link points to; empty: no such link.
std::string link_name(const std::string& path);
// In order, without hidden ones.
std::vector<std::string> entries_of(const std::string& folder);

}  // namespace sluice::guest
