// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/code_caches.h"

#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>

#include "mediator/spawner/limits.h"

namespace sluice::spawner {

namespace {
constexpr unsigned long kMountFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
}  // namespace

Result<CodeCaches> CodeCaches::open(uint64_t bytes, spawner_protocol::UidRange ids, bool own_ids) {
  CodeCaches all;
  all.bytes_ = bytes;
  all.ids_ = ids;
  all.own_ids_ = own_ids;
  all.folders_.resize(ids.count());
  if (::mount("codes", kCodeCaches, "tmpfs", kMountFlags, "mode=0711,size=1m") != 0)
    return Error::from_errno(std::string("mount ") + kCodeCaches);
  return all;
}

std::string CodeCaches::path_of(const Folder& folder) const {
  return std::string(kCodeCaches) + "/" + std::to_string(&folder - folders_.data());
}

CodeCaches::Folder* CodeCaches::find(uint64_t number) {
  const auto at = std::find_if(folders_.begin(), folders_.end(),
                               [&](const Folder& f) { return f.number == number; });
  return at == folders_.end() ? nullptr : &*at;
}

// Nobody's, else the one that was taken longest ago, of those that no worker uses.
CodeCaches::Folder* CodeCaches::free_folder() {
  Folder* oldest = nullptr;
  for (Folder& f : folders_)
    if (f.workers == 0 && (!oldest || f.taken < oldest->taken)) oldest = &f;
  return oldest;
}

// Its workers keep the mount that they have.
void CodeCaches::clear(Folder& folder) {
  if (folder.mounted) ::umount2(path_of(folder).c_str(), MNT_DETACH);
  folder.mounted = false;
  folder.number = folder.taken = 0;
}

Result<CodeCaches::Place> CodeCaches::take(uint64_t number) {
  Folder* folder = find(number);
  if (!folder) {
    folder = free_folder();
    if (!folder) return Error{EAGAIN, "all caches of machine code are in use"};
    clear(*folder);
  }
  Place place{static_cast<size_t>(folder - folders_.data()), path_of(*folder),
              ids_.first + static_cast<uid_t>(folder - folders_.data()), bytes_};
  if (!folder->mounted) {
    if (::mkdir(place.path.c_str(), 0700) != 0 && errno != EEXIST)
      return Error::from_errno("mkdir " + place.path);
    const std::string id = std::to_string(place.id);
    const std::string options = "mode=0700,size=" + std::to_string(bytes_) +
                                ",nr_inodes=" + limits::kTmpFiles +
                                (own_ids_ ? ",uid=" + id + ",gid=" + id : "");
    if (::mount("code", place.path.c_str(), "tmpfs", kMountFlags, options.c_str()) != 0)
      return Error::from_errno("mount " + place.path);
  }
  folder->mounted = true;
  folder->number = number;
  folder->taken = ++taken_;
  ++folder->workers;
  return place;
}

void CodeCaches::forget(uint64_t number) {
  if (Folder* folder = number ? find(number) : nullptr) clear(*folder);
}

}  // namespace sluice::spawner
