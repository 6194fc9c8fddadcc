// SPDX-License-Identifier: Apache-2.0
// What libvirt and others hand a program on its standard input: a domain's XML.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>

#include "mediator/libvirt/limits.h"

namespace sluice::libvirt {

// All of it, or so much that it is too long.
inline std::string read_standard_input() {
  std::string text;
  char buffer[65536];
  ssize_t n;
  while (text.size() <= limits::kMaxXmlBytes &&
         ((n = ::read(0, buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR)))
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  return text;
}

}  // namespace sluice::libvirt
