// SPDX-License-Identifier: Apache-2.0
// SocketAccess: who may connect to the sockets that QEMU connects to, by the configuration. Whoever
// does gets the region of a vGPU, and ends the sessions of its virtual machine by leaving. Made
// once at start, then never changed; sluiced's one thread.
#pragma once

#include <optional>
#include <vector>

#include "mediator/base/listen_socket.h"
#include "mediator/base/unix_socket.h"
#include "mediator/daemon/setup/config.h"

namespace sluice {

// In this order: libvirt's own group on Debian, on Fedora, and who may use KVM at all.
inline constexpr const char* kQemuGroups[] = {"libvirt-qemu", "qemu", "kvm"};
inline constexpr const char* kQemuUsers[] = {"libvirt-qemu", "qemu"};

// By name or number; nullopt: there is none.
std::optional<gid_t> find_group(const std::string& name);
std::optional<uid_t> find_user(const std::string& name);

struct SocketAccess {
  std::optional<gid_t> group;  // of the socket; unset: sluiced's own
  std::vector<uid_t> users;    // besides root and sluiced's own
  std::vector<gid_t> groups;

  // Looks the configured names up; an error names one that there is not.
  static Result<SocketAccess> make(const Config& config);
  // The error says what to set. `member_of`: all groups of the peer.
  Result<void> may_connect(const PeerCredentials& peer, const std::vector<gid_t>& member_of) const;
};

// A note in sluiced's own folder that a socket elsewhere was made by it. After a crash the next
// sluiced may then replace the dead file; one that nobody noted belongs to somebody else. The
// note goes with the object, unless the process dies.
class SocketNote {
 public:
  SocketNote() = default;
  static Result<SocketNote> write(const std::string& folder, const std::string& vgpu,
                                  const std::string& path, const FileId& file);
  static bool exists(const std::string& folder, const std::string& path, const FileId& file);
  SocketNote(SocketNote&& other) noexcept : note_(std::exchange(other.note_, {})) {}
  SocketNote& operator=(SocketNote&& other) noexcept {
    std::swap(note_, other.note_);
    return *this;
  }
  ~SocketNote();

 private:
  std::string note_;
};

}  // namespace sluice
