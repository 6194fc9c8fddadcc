// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/group_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/core/names.h"
#include "mediator/daemon/setup/state_file.h"

namespace sluice {
namespace {

constexpr std::string_view kFormat = "sluice-groups 1\n";
// kMaxGroups lines of two names and four numbers.
constexpr size_t kMaxGroupsBytes = 1u << 20;
constexpr int kMostAside = 10;

std::string_view next_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}
bool number(std::string_view word, uint32_t least, uint32_t most, uint32_t& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() && value >= least &&
         value <= most;
}
bool parse_row(std::string_view line, GroupRow& row) {
  row.name = next_word(line);
  row.parent = next_word(line);
  if (row.parent == "-") row.parent.clear();
  policy::GroupShare& s = row.share;
  return valid_vgpu_name(row.name) && (row.parent.empty() || valid_vgpu_name(row.parent)) &&
         number(next_word(line), limits::kMinWeight, limits::kMaxWeight, s.weight) &&
         number(next_word(line), 0, policy::kPriorityLevels - 1, s.priority) &&
         number(next_word(line), 0, policy::kWholePermille, s.min_permille) &&
         number(next_word(line), 0, policy::kWholePermille, s.max_permille) && line.empty();
}

}  // namespace

struct GroupFile::Writes {
  std::mutex mutex;
  std::condition_variable done;
  std::string text;
  uint64_t asked = 0, taken = 0, tried = 0;  // numbers of texts: `text`'s, and how far these are
  Result<void> outcome;                      // of `tried`
  bool writing = false;                      // by some thread
  std::vector<std::string> errors;           // not logged yet

  void finish(uint64_t number, Result<void> written) {
    tried = number;
    if (!written) errors.push_back(written.error().message);
    outcome = std::move(written);
  }

  // On the thread. Whoever writes the file writes later texts of it, too.
  void write(const std::string& dir) {
    std::unique_lock lock(mutex);
    if (std::exchange(writing, true)) return;
    while (taken < asked) {
      const uint64_t number = taken = asked;
      const std::string now = text;
      lock.unlock();
      auto written = replace_state_file(dir, dir + "/groups", now);
      lock.lock();
      finish(number, std::move(written));
    }
    writing = false;
    done.notify_all();
  }
};

GroupFile::GroupFile(boost::asio::io_context& io, std::string dir)
    : dir_(std::move(dir)), writes_(std::make_shared<Writes>()), disk_(io) {}

GroupFile::~GroupFile() {
  std::unique_lock lock(writes_->mutex);
  const bool all = writes_->done.wait_for(lock, std::chrono::milliseconds(kFinishMs),
                                          [this] { return writes_->tried == writes_->asked; });
  lock.unlock();
  log_errors();
  if (!all) log::warning("state_dir {}: the disk is slow; the newest groups may be lost", dir_);
}

Result<GroupFile::Read> GroupFile::load() const {
  if (dir_.empty()) return Read{};
  auto text = read_state_file(dir_ + "/groups", kMaxGroupsBytes);
  if (!text && text.error().code == ENOENT) return Read{};
  if (!text && text.error().code == EACCES)  // as root's `cp` leaves what it brings back
    return Error{EACCES, text.error().message +
                             "; it has to be of the user that sluiced runs as: chown it, give it "
                             "its name again, and restart sluiced"};
  if (!text) return text.error();
  return parse(*text);
}

Result<std::string> GroupFile::set_aside() const {
  const std::string file = dir_ + "/groups";
  for (int i = 0; i < kMostAside; ++i) {
    const std::string aside = file + ".damaged" + (i ? "." + std::to_string(i) : "");
    if (::renameat2(AT_FDCWD, file.c_str(), AT_FDCWD, aside.c_str(), RENAME_NOREPLACE) == 0)
      return aside;
    if (errno != EEXIST) return Error::from_errno("rename " + file);
  }
  return Error{EEXIST, "there are " + std::to_string(kMostAside) + " others already"};
}

void GroupFile::save(const std::vector<GroupRow>& groups, Then then) {
  if (dir_.empty()) {
    if (then) then({});
    return;
  }
  {
    std::lock_guard lock(writes_->mutex);
    writes_->text = text_of(groups);
    const uint64_t number = ++writes_->asked;
    if (then) waiters_.push_back({number, std::move(then)});
  }
  const bool posted =
      disk_.post([writes = writes_, dir = dir_] { writes->write(dir); }, [this] { settle(); });
  if (posted) return;
  {
    std::lock_guard lock(writes_->mutex);
    if (writes_->writing) return;  // somebody writes it already, and settles
    writes_->taken = writes_->asked;
    writes_->finish(writes_->asked, Error{EAGAIN, "too much waits for the disk"});
  }
  settle();
}

void GroupFile::settle() {
  log_errors();
  Result<void> outcome;
  std::vector<Waiter> tried;
  {
    std::lock_guard lock(writes_->mutex);
    outcome = writes_->outcome;
    const auto rest = std::find_if(waiters_.begin(), waiters_.end(),
                                   [this](const Waiter& w) { return w.text > writes_->tried; });
    tried.assign(std::make_move_iterator(waiters_.begin()), std::make_move_iterator(rest));
    waiters_.erase(waiters_.begin(), rest);
  }
  for (const Waiter& w : tried) w.then(outcome);
}

void GroupFile::log_errors() {
  std::vector<std::string> errors;
  {
    std::lock_guard lock(writes_->mutex);
    errors.swap(writes_->errors);
  }
  for (const std::string& e : errors)
    log::warning("{}/groups: {}; groups made last will be gone when sluiced is started anew", dir_,
                 e);
}

std::string GroupFile::text_of(const std::vector<GroupRow>& groups) {
  std::string text(kFormat);
  for (const GroupRow& g : groups) {
    text += g.name + " " + (g.parent.empty() ? "-" : g.parent);
    for (const uint32_t n :
         {g.share.weight, g.share.priority, g.share.min_permille, g.share.max_permille})
      text += " " + std::to_string(n);
    text += '\n';
  }
  return text;
}

Result<GroupFile::Read> GroupFile::parse(std::string_view text) {
  if (!text.starts_with(kFormat))
    return Error{EINVAL, "the first line is not '" +
                             std::string(kFormat.substr(0, kFormat.size() - 1)) + "'"};
  text.remove_prefix(kFormat.size());
  Read read;
  std::vector<GroupRow> rows;
  std::set<std::string> names;
  for (size_t line = 2; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    const std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(row.size() + 1, text.size()));
    const std::string where = "line " + std::to_string(line) + ": ";
    GroupRow g;
    if (end == std::string_view::npos)
      read.left_out.push_back(where + "it was cut short");
    else if (!parse_row(row, g) || !names.insert(g.name).second)
      read.left_out.push_back(where +
                              "a name, its parent or '-', weight, priority, minimum and maximum "
                              "were expected, each name once");
    else if (rows.size() + 1 >= policy::kMaxGroups)
      read.left_out.push_back(where + "more than " + std::to_string(policy::kMaxGroups - 1) +
                              " groups");
    else
      rows.push_back(std::move(g));
  }
  for (std::set<std::string> known{""}; !rows.empty();) {
    const size_t before = rows.size();
    for (size_t i = 0; i < rows.size();) {
      if (!known.contains(rows[i].parent)) {
        ++i;
        continue;
      }
      known.insert(rows[i].name);
      read.rows.push_back(std::move(rows[i]));
      rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (rows.size() < before) continue;
    for (const GroupRow& g : rows)
      read.left_out.push_back("group '" + g.name + "' is in '" + g.parent +
                              "', which is not there or is in it");
    break;
  }
  return read;
}

}  // namespace sluice
