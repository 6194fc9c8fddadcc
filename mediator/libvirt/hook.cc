// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/hook.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/value.hpp>

#include "mediator/base/fd.h"
#include "mediator/cli/admin_client.h"
#include "mediator/cli/domain_request.h"
#include "mediator/libvirt/limits.h"

namespace sluice::libvirt {
namespace {

namespace json = boost::json;

// As libvirt prints one: nothing else becomes a file's name.
bool is_uuid(std::string_view text) {
  return text.size() == 36 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
         });
}

// The notes of vGPUs that the hook created: NOTES/UUID, whose text is the vGPU's name.
class Notes {
 public:
  explicit Notes(std::string folder) : folder_(std::move(folder)) {}

  Result<void> write(const DomainVgpu& d) const {
    if (!is_uuid(d.uuid)) return Error{EINVAL, "the domain has no <uuid>"};
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      return Error::from_errno("make " + folder_);
    Fd file(::open(path(d).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return Error::from_errno("write " + path(d));
    if (::write(file.get(), d.vgpu.data(), d.vgpu.size()) != static_cast<ssize_t>(d.vgpu.size()))
      return Error::from_errno("write " + path(d));
    return {};
  }
  bool exists(const DomainVgpu& d) const {
    return is_uuid(d.uuid) && ::access(path(d).c_str(), F_OK) == 0;
  }
  // The name of the vGPU then: the domain may have got another name since.
  std::string name(const DomainVgpu& d) const {
    Fd file(::open(path(d).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    char text[256];
    const ssize_t n = file ? ::read(file.get(), text, sizeof text) : 0;
    return n > 0 ? std::string(text, static_cast<size_t>(n)) : d.vgpu;
  }
  void remove(const DomainVgpu& d) const { ::unlink(path(d).c_str()); }

 private:
  std::string path(const DomainVgpu& d) const { return folder_ + "/" + d.uuid; }
  std::string folder_;
};

Result<AdminClient> connect(const HookPaths& paths) {
  auto client = AdminClient::connect(paths.admin_socket);
  if (!client)
    return Error{client.error().code, client.error().message + "; 'systemctl start sluiced'"};
  if (auto set = client->set_timeout(limits::kAdminTimeoutSeconds); !set) return set.error();
  return client;
}

std::string text(const json::value& from, const char* name) {
  const json::value* v = from.is_object() ? from.get_object().if_contains(name) : nullptr;
  return v && v->is_string() ? std::string(v->get_string()) : std::string();
}

// The vGPU of this name, or null.
Result<json::value> find(AdminClient& client, const std::string& name) {
  auto all = client.call("vgpu.list");
  if (!all) return all.error();
  if (all->is_array())
    for (const json::value& v : all->get_array())
      if (text(v, "name") == name) return v;
  return json::value(nullptr);
}

Result<void> prepare(const HookPaths& paths, const DomainVgpu& d) {
  auto client = connect(paths);
  if (!client) return client.error();
  auto known = find(*client, d.vgpu);
  if (!known) return known.error();
  const Notes notes(paths.notes);
  if (known->is_null()) {
    // The note first: what a killed hook leaves is a note without a vGPU, which harms nobody.
    if (auto noted = notes.write(d); !noted) return noted.error();
    auto made = client->call("vgpu.create", create_request(d));
    if (made) return {};
    notes.remove(d);
    return made.error();
  }
  // Made by hand, or left by a domain whose end libvirt did not see.
  const std::string state = text(*known, "state"), socket = text(*known, "socket");
  if (socket != d.socket)
    return Error{EEXIST, "there is a vGPU '" + d.vgpu + "' with another socket, " + socket +
                             "; 'sluicectl delete " + d.vgpu + "' or correct <server path>"};
  if (state != "waiting")
    return Error{EBUSY, "vGPU '" + d.vgpu + "' is " + state +
                            ": another virtual machine has its socket, or it is being deleted"};
  auto set = client->call("vgpu.set", set_request(d));
  return set ? Result<void>() : Result<void>(set.error());
}

Result<void> release(const HookPaths& paths, const DomainVgpu& d) {
  const Notes notes(paths.notes);
  if (!notes.exists(d)) return {};
  const std::string name = notes.name(d);
  // Without sluiced there is no vGPU either.
  if (auto client = connect(paths)) {
    auto known = find(*client, name);
    if (!known) return known.error();
    if (!known->is_null())
      if (auto gone = client->call("vgpu.delete", {{"name", name}}); !gone) return gone.error();
  }
  notes.remove(d);
  return {};
}

Result<void> reconnect(const HookPaths& paths, const DomainVgpu& d) {
  auto client = connect(paths);
  if (!client) return client.error();
  auto known = find(*client, d.vgpu);
  if (!known) return known.error();
  if (known->is_null())
    return Error{ENOENT,
                 "the running domain's vGPU is gone (sluiced was restarted); detach and "
                 "attach it, or restart the domain"};
  return {};
}

}  // namespace

Result<void> run_hook(const HookPaths& paths, std::string_view operation, std::string_view sub,
                      std::string_view xml) {
  const bool begins = sub == "begin";
  const bool known = (operation == "prepare" && begins) || (operation == "migrate" && begins) ||
                     (operation == "reconnect" && begins) ||
                     (operation == "release" && sub == "end");
  if (!known) return {};
  auto vgpu = find_vgpu(xml, paths.sockets);
  // The end of a domain whose XML is wrong: its start was denied, so there is nothing of it.
  if (!vgpu) return operation == "release" ? Result<void>() : Result<void>(vgpu.error());
  if (!*vgpu) return {};
  const DomainVgpu& d = **vgpu;
  if (operation == "prepare") return prepare(paths, d);
  if (operation == "release") return release(paths, d);
  if (operation == "reconnect") return reconnect(paths, d);
  return Error{ENOTSUP, "a domain with a vGPU cannot be migrated; 'sluicectl detach' it before"};
}

}  // namespace sluice::libvirt
