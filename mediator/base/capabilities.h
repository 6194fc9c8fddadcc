// SPDX-License-Identifier: Apache-2.0
// The calling thread's capabilities.
#pragma once

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sluice {

// Whether it has that one (CAP_...) and may use it now; false if the kernel does not say.
inline bool has_capability(int capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[capability / 32].effective >> capability % 32 & 1) != 0;
}

}  // namespace sluice
