// SPDX-License-Identifier: Apache-2.0
#include "mediator/libvirt/follower.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "mediator/base/log.h"
#include "mediator/cli/domain_request.h"
#include "mediator/core/names.h"

namespace sluice::libvirt {
namespace {

namespace json = boost::json;

std::string clean(const std::string& text) { return clean_text(text.data(), text.size()); }

// Of `wanted` what `before` does not have.
json::object difference(const json::object& wanted, const json::object& before) {
  json::object changed;
  for (const auto& [key, value] : wanted) {
    const json::value* old = before.if_contains(key);
    if (!old || *old != value) changed[key] = value;
  }
  return changed;
}

}  // namespace

Result<json::object> Follower::settings(const DomainVgpu& d) {
  auto defaults = vgpus_.defaults();
  if (!defaults) return defaults.error();
  json::object all{{"memory_bytes", 0}, {"priority", 0}, {"min_permille", 0},
                   {"max_permille", 0}, {"group", ""},   {"mode", d.mode}};
  host_mode_ = defaults->host_mode;
  if (defaults->weight) all["weight"] = defaults->weight;
  if (!defaults->latency.empty()) all["latency"] = defaults->latency;
  for (auto& [key, value] : set_request(d)) all[key] = value;
  all.erase("name");
  return all;
}

void Follower::report(const std::string& uuid, const std::string& domain,
                      const std::string& reason) {
  std::string& last = reported_[uuid];
  if (last == reason) return;
  last = reason;
  log::warning("domain {}: {}", clean(domain), clean(reason));
}

void Follower::mode_waits(const DomainVgpu& d) {
  const std::string mode = d.mode.empty() ? "none" : "'" + d.mode + "'";
  const bool other = !d.mode.empty() && !host_mode_.empty() && d.mode != host_mode_;
  log::warning("domain {}: mode {} counts from its next start on{}", clean(d.domain), mode,
               other ? "; this host is in mode '" + clean(host_mode_) + "' and will not start it"
                     : std::string());
}

void Follower::lost(const DomainVgpu& d, const std::string& uuid, uint64_t now_ns) {
  const uint64_t since = lost_since_.emplace(uuid, now_ns).first->second;
  if (now_ns - since >= options_.grace_ns)
    report(uuid, d.domain,
           "it runs without its vGPU (sluiced was stopped meanwhile); shut it off and start it");
}

Result<void> Follower::follow(RunningDomains& domains, const std::vector<ListedVgpu>& vgpus,
                              const std::string& uuid, uint64_t now_ns) {
  auto domain = domains.find(uuid);
  if (!domain) {
    report(uuid, uuid, domain.error().message);
    return {};
  }
  // Settings without a device set nothing: it was detached, or is about to be attached.
  const bool device = *domain && (*domain)->xml.find("ivshmem-doorbell") != std::string::npos;
  auto ours = device ? find_vgpu((*domain)->xml, options_.sockets)
                     : Result<std::optional<DomainVgpu>>(std::optional<DomainVgpu>());
  if (!ours) {
    report(uuid, (*domain)->name, "nothing changed: " + ours.error().message);
    return {};
  }
  const ListedVgpu* vgpu = *ours ? vgpu_of(vgpus, **ours) : nullptr;
  if (vgpu || !*ours) lost_since_.erase(uuid);
  if (!*ours) {
    applied_.erase(uuid);
    reported_.erase(uuid);
    return {};
  }
  const DomainVgpu& d = **ours;
  if (!vgpu) {
    lost(d, uuid, now_ns);
    return {};
  }
  if (auto done = follow_pause(d, *vgpu, (*domain)->paused, uuid); !done) return done;
  return follow_settings(d, *vgpu, uuid);
}

Result<void> Follower::follow_pause(const DomainVgpu& d, const ListedVgpu& vgpu, bool paused,
                                    const std::string& uuid) {
  if (vgpu.paused == paused) return {};
  auto set = vgpus_.set({{"name", vgpu.name}, {"paused", paused ? 1 : 0}});
  if (!set && !refused(set.error())) return set;
  if (set)
    log::info("domain {}: {}", clean(d.domain), paused ? "paused" : "goes on");
  else
    report(uuid, d.domain, set.error().message);
  return {};
}

// What has changed in the domain's settings since they were applied last.
Result<void> Follower::follow_settings(const DomainVgpu& d, const ListedVgpu& vgpu,
                                       const std::string& uuid) {
  auto wanted = settings(d);
  if (!wanted) return wanted.error();
  const auto before = applied_.find(uuid);
  if (before == applied_.end() && !seen_all_) {
    applied_[uuid] = *wanted;
    return {};
  }
  json::object change =
      difference(*wanted, before == applied_.end() ? json::object() : before->second);
  const bool start = before == applied_.end();
  const bool mode = change.erase("mode") > 0;
  if (!change.empty()) {
    const std::string shown = json::serialize(change);
    change["name"] = vgpu.name;
    if (auto set = vgpus_.set(std::move(change)); !set) {
      if (!refused(set.error())) return set;
      report(uuid, d.domain, "nothing changed: " + set.error().message);
      return {};
    }
    if (!start) log::info("domain {}: set {}", clean(d.domain), clean(shown));
  }
  if (mode && !start) mode_waits(d);
  applied_[uuid] = std::move(*wanted);
  reported_.erase(uuid);
  return {};
}

Result<void> Follower::changed(RunningDomains& domains, const std::set<std::string>& uuids,
                               uint64_t now_ns) {
  if (uuids.empty()) return {};
  auto vgpus = vgpus_.list();
  if (!vgpus) return vgpus.error();
  for (const std::string& uuid : uuids)
    if (auto followed = follow(domains, *vgpus, uuid, now_ns); !followed) return followed;
  return {};
}

Result<void> Follower::all(RunningDomains& domains, uint64_t now_ns) {
  auto uuids = domains.uuids();
  if (!uuids) {
    report("", "(all)", uuids.error().message);
    return {};
  }
  // Domains of which we know and that ended meanwhile are forgotten by the same pass.
  for (const auto& [uuid, settings] : applied_) uuids->insert(uuid);
  for (const auto& [uuid, since] : lost_since_) uuids->insert(uuid);
  if (auto done = changed(domains, *uuids, now_ns); !done) return done;
  reported_.erase("");
  seen_all_ = true;
  return {};
}

Result<bool> Follower::collect(RunningDomains& domains, uint64_t now_ns) {
  auto vgpus = vgpus_.list();
  if (!vgpus) return vgpus.error();
  std::map<std::string, uint64_t> left;
  for (const ListedVgpu& v : *vgpus) {
    if (!v.owner.starts_with(kOwnerPrefix) || !v.waiting()) continue;
    auto domain = domains.find(v.owner.substr(kOwnerPrefix.size()));
    if (!domain) continue;
    // As text: a domain whose settings cannot be read has its device nevertheless.
    if (*domain && (*domain)->xml.find(v.socket) != std::string::npos) continue;
    const auto known = left_since_.find(v.name);
    const uint64_t since = known == left_since_.end() ? now_ns : known->second;
    if (known == left_since_.end() || now_ns - since < options_.grace_ns) {
      left[v.name] = since;
      continue;
    }
    auto gone = vgpus_.remove(v.name);
    if (!gone && !refused(gone.error())) return gone.error();
    if (gone)
      log::info("vgpu {}: deleted, its domain has ended or no longer has it", clean(v.name));
    else
      log::warning("vgpu {}: {}", clean(v.name), clean(gone.error().message));
  }
  left_since_ = std::move(left);
  const bool may_be_lost =
      std::any_of(lost_since_.begin(), lost_since_.end(),
                  [&](const auto& lost) { return now_ns - lost.second < options_.grace_ns; });
  return may_be_lost || !left_since_.empty();
}

}  // namespace sluice::libvirt
