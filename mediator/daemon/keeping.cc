// SPDX-License-Identifier: Apache-2.0
// Daemon: vGPUs, their virtual machines' connections and groups through a restart of sluiced.
#include <algorithm>

#include "mediator/base/log.h"
#include "mediator/daemon/daemon.h"
#include "mediator/daemon/guests/kept_vgpu.h"

namespace sluice {
namespace {

constexpr const char* kGroups = "groups";
constexpr const char* kVgpuPrefix = "vgpu.";

std::string text_of(const Daemon& d, const VgpuServer& v) {
  const VgpuSpec& s = v.spec();
  return kept_text(KeptVgpu{.name = s.name,
                            .share = s.share,
                            .group = d.group_name(s.share.group),
                            .memory_bytes = s.memory_bytes,
                            .socket = s.socket,
                            .owner = s.owner,
                            .mode = s.mode,
                            .region_bytes = s.geometry.region_bytes,
                            .slots = s.geometry.slots,
                            .paused = v.paused(),
                            .owed = v.penalty().owed(),
                            .life = v.connection().empty() ? 0 : v.host_epoch()});
}

// Two descriptors, then the bells of both directions. nullopt: nobody was connected.
Result<std::optional<VgpuServer::Connection>> connection_of(std::vector<Fd> fds, uint32_t slots) {
  if (fds.empty()) return std::optional<VgpuServer::Connection>();
  const size_t vectors = slots + 1;
  if (fds.size() != 2 + 2 * vectors)
    return Error{EPROTO, "what an earlier sluiced kept has too few descriptors"};
  VgpuServer::Connection c{std::move(fds[0]), {std::move(fds[1]), {}, {}}};
  for (size_t i = 0; i < vectors; ++i) {
    c.channel.host_bells.push_back(std::move(fds[2 + i]));
    c.channel.guest_bells.push_back(std::move(fds[2 + vectors + i]));
  }
  return std::optional(std::move(c));
}

}  // namespace

void Daemon::restore_groups(const std::string& text) {
  auto groups = read_kept_groups(text);
  if (!groups) return log::warning("groups: {}", groups.error().message);
  for (const KeptGroup& g : *groups)
    if (auto set = set_group(g.name, {policy::kRootGroup, g.parent, g.share}); !set)
      log::warning("group {}: {}", g.name, set.error().message);
}

Result<void> Daemon::restore_vgpu(io::FdStore::Parcel parcel) {
  auto kept = read_kept_vgpu(parcel.text);
  if (!kept) return kept.error();
  auto connection = connection_of(std::move(parcel.fds), kept->slots);
  if (!connection) return connection.error();
  auto group = group_id(kept->group);
  if (!group) return group.error();
  CreateRequest r;
  r.name = kept->name;
  r.weight = kept->share.weight;
  r.memory_bytes = kept->memory_bytes;
  r.priority = kept->share.priority;
  r.limits = kept->share;
  r.limits.group = *group;
  r.socket = kept->socket;
  r.region_bytes = kept->region_bytes;
  r.slots = kept->slots;
  r.owner = kept->owner;
  r.mode = kept->mode;  // where the host has changed since, it is not kept
  auto vgpu = create(r, std::move(*connection));
  if (!vgpu) return vgpu.error();
  if (kept->paused) (*vgpu)->set_paused(true);
  (*vgpu)->take_over_debt(kept->owed);
  return {};
}

void Daemon::restore() {
  auto parcels = store_.take();
  if (const auto groups = parcels.find(kGroups); groups != parcels.end()) {
    restore_groups(groups->second.text);
    kept_.try_emplace(kGroups);  // of unknown text: keep() writes it anew
    parcels.erase(groups);
  }
  for (auto& [name, parcel] : parcels) {
    if (auto restored = restore_vgpu(std::move(parcel)); !restored)
      log::warning("{}: not kept: {}", name, restored.error().message);
    kept_.try_emplace(name);
  }
  keep();
}

void Daemon::keep() {
  if (!store_.available() || shutting_down_) return;
  std::map<std::string, std::string> wanted;
  if (!groups_.empty()) {
    std::vector<KeptGroup> groups(groups_.size());
    for (const auto& [name, g] : groups_) groups.at(g.id - 1) = {name, g.parent, g.share};
    wanted[kGroups] = kept_text(groups);
  }
  for (const auto& [name, v] : vgpus_)
    if (!v->closing()) wanted[kVgpuPrefix + name] = text_of(*this, *v);
  Result<void> done;
  for (const auto& [name, text] : wanted) {
    std::string& has = kept_[name];
    if (has == text) continue;
    std::vector<int> fds;
    if (name != kGroups) {
      VgpuServer& vgpu = *find(name.substr(std::string_view(kVgpuPrefix).size()));
      fds = vgpu.connection();
      if (!fds.empty() && !vgpu.keep_connection()) continue;
    }
    auto put = store_.put(name, text, fds);
    if (put)
      has = text;
    else
      done = put;
  }
  for (auto it = kept_.begin(); it != kept_.end();) {
    const bool gone = !wanted.contains(it->first) && store_.remove(it->first).ok();
    it = gone ? kept_.erase(it) : std::next(it);
  }
  if (!done && !keeping_fails_)
    log::warning("vGPUs would not outlive a restart of sluiced: {}", done.error().message);
  keeping_fails_ = !done;
}

bool Daemon::is_kept(const VgpuServer& vgpu) const {
  const auto it = kept_.find(kVgpuPrefix + vgpu.spec().name);
  return it != kept_.end() && !vgpu.connection().empty() && it->second == text_of(*this, vgpu);
}

}  // namespace sluice
