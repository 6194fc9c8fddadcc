// SPDX-License-Identifier: Apache-2.0
// GroupFile: the groups of vGPUs that an operator made, kept in `state_dir` as the file `groups`,
// so that they outlive sluiced: vGPUs that libvirt's hook or a pod's agent makes again name them.
//
//   sluice-groups 1
//   NAME PARENT WEIGHT PRIORITY MIN_PERMILLE MAX_PERMILLE     PARENT: "-" for the root
//
// Owned by the Daemon, used from its thread. load() and set_aside() wait for the disk, once, at
// sluiced's start. save() never waits: a thread writes the newest text, and `then` says what came
// of it. Of a file that is damaged the lines that can be read are taken; the file itself is kept
// under another name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/io/peers/peer_thread.h"
#include "policies/policy.h"

namespace sluice {

struct GroupRow {
  std::string name, parent;  // parent "": the root
  policy::GroupShare share;  // its `parent` is not set
};

class GroupFile {
 public:
  // `dir` empty: nothing is kept.
  GroupFile(boost::asio::io_context& io, std::string dir);
  // Waits for what is still to be written, but no longer than kFinishMs.
  ~GroupFile();

  struct Read {
    std::vector<GroupRow> rows;         // parents before children
    std::vector<std::string> left_out;  // why, of each other line
  };
  // Nothing if there is no file.
  Result<Read> load() const;
  // Renames the file, whatever it is, to `groups.damaged` or `groups.damaged.N`, so that no save()
  // replaces it. Its new name.
  Result<std::string> set_aside() const;
  // `then`, if any, is called once, before save() returns or later: what these groups, or younger
  // ones, came to on the disk. A disk that hangs delays it; not called when the object has gone.
  using Then = std::function<void(const Result<void>&)>;
  void save(const std::vector<GroupRow>& groups, Then then = nullptr);

  static std::string text_of(const std::vector<GroupRow>& groups);
  // Checks each number's range and each name. What has a parent that is not there or is in it, and
  // a last line that was cut short, is left out. An error: the first line is another.
  static Result<Read> parse(std::string_view text);

  static constexpr uint64_t kFinishMs = 5000;

 private:
  struct Writes;
  struct Waiter {
    uint64_t text;  // its number
    Then then;
  };
  void log_errors();
  // Logs what failed and calls those whose text has been tried.
  void settle();

  std::string dir_;
  std::vector<Waiter> waiters_;     // oldest first
  std::shared_ptr<Writes> writes_;  // shared with the thread
  io::PeerThread disk_;
};

}  // namespace sluice
