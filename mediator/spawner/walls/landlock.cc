// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/walls/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/fd.h"

namespace sluice::spawner {
namespace {

// As of Landlock's version 6. The kernel takes a shorter or longer struct, and the header of an
// older one lacks the later fields.
struct RulesetAttributes {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;  // since 4
  uint64_t scoped = 0;              // since 6
};
constexpr uint64_t kBindTcp = 1 << 0, kConnectTcp = 1 << 1;
constexpr uint64_t kScopeAbstractSockets = 1 << 0, kScopeSignals = 1 << 1;

constexpr uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDir = 1 << 3,
                   kTruncate = 1 << 14, kIoctl = 1 << 15;
// Rights that a rule for a file may name.
constexpr uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kIoctl;

// All rights on files that this version knows: what is not known is not refused.
uint64_t rights_of(int version) {
  uint64_t bits = 13;           // version 1
  if (version >= 2) bits = 14;  // moving between folders
  if (version >= 3) bits = 15;  // truncate
  if (version >= 5) bits = 16;  // ioctl on devices
  return (uint64_t{1} << bits) - 1;
}

}  // namespace

int landlock_version() {
  const long v =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return v > 0 ? static_cast<int>(v) : 0;
}

Result<void> landlock_restrict(const LandlockPaths& paths) {
  const int version = landlock_version();
  if (version == 0) return Error{ENOSYS, "this kernel has no Landlock"};
  RulesetAttributes attributes;
  attributes.handled_access_fs = rights_of(version);
  if (version >= 4) attributes.handled_access_net = kBindTcp | kConnectTcp;
  if (version >= 6) attributes.scoped = kScopeAbstractSockets | kScopeSignals;
  const size_t bytes = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  Fd rules(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, bytes, 0)));
  if (!rules) return Error::from_errno("landlock ruleset");
  auto allow = [&](const std::string& path, uint64_t rights) -> Result<void> {
    Fd at(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat st;
    if (!at || ::fstat(at.get(), &st) != 0) return {};
    if (!S_ISDIR(st.st_mode)) rights &= kOfFiles;
    landlock_path_beneath_attr rule{};
    rule.allowed_access = rights & attributes.handled_access_fs;
    rule.parent_fd = at.get();
    if (::syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
      return Error::from_errno("landlock rule for " + path);
    return {};
  };
  for (const std::string& p : paths.read)
    if (auto r = allow(p, kExecute | kReadFile | kReadDir); !r) return r;
  for (const std::string& p : paths.write)
    if (auto r = allow(p, rights_of(version) & ~kExecute); !r) return r;
  if (::syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0)
    return Error::from_errno("landlock");
  return {};
}

}  // namespace sluice::spawner
