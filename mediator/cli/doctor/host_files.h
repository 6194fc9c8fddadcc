// SPDX-License-Identifier: Apache-2.0
// The host's files, as the doctor sees them: below a folder that stands for "/", so that a test can
// make a host of ordinary files. Rights are reckoned from modes and from etc/passwd and etc/group:
// access lists and accounts of other sources are not seen. Reads only; any thread. What is missing
// or cannot be read is nullopt.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sluice::cli {

struct Account {
  std::string name;
  uid_t uid = 0;
  std::set<gid_t> groups;
};

class HostFiles {
 public:
  explicit HostFiles(std::string root) : root_(std::move(root)) {}

  // The first 1 MiB.
  std::optional<std::string> read(const std::string& path) const;
  // All that the kernel's log holds; of a file its end.
  std::optional<std::string> read_log(const std::string& path) const;
  std::optional<struct stat> status(const std::string& path) const;
  bool exists(const std::string& path) const { return status(path).has_value(); }
  // Names in a folder, sorted; of one that cannot be read none.
  std::vector<std::string> names(const std::string& folder) const;
  // What a link's last component points to; empty: no link.
  std::string link(const std::string& path) const;
  // Bytes that are free on its filesystem.
  std::optional<uint64_t> free_bytes(const std::string& path) const;

  std::optional<Account> account(const std::string& name) const;
  std::string group_name(gid_t gid) const;  // its number where it has none
  // Whether the account may use the file: `bits` of rwx (4, 2, 1) there, and x on each folder.
  bool may_use(const Account& who, const std::string& path, unsigned bits) const;
  // Whether a process runs that was started by that name (without folders).
  bool runs(const std::string& program) const;

 private:
  std::string root_;
};

}  // namespace sluice::cli
