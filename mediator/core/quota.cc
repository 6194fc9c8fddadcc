// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/quota.h"

#include <algorithm>

#include "mediator/base/check.h"

namespace sluice::core {

void QuotaLedger::add_vgpu(Vgpu vgpu, uint64_t limit_bytes) {
  if (vgpu >= vgpus_.size()) vgpus_.resize(vgpu + 1);
  SLUICE_CHECK(!vgpus_[vgpu].present);
  vgpus_[vgpu] = {.present = true, .limit_bytes = limit_bytes};
}

void QuotaLedger::set_limit(Vgpu vgpu, uint64_t limit_bytes) {
  SLUICE_CHECK(vgpu < vgpus_.size() && vgpus_[vgpu].present);
  vgpus_[vgpu].limit_bytes = limit_bytes;
}

void QuotaLedger::remove_vgpu(Vgpu vgpu) {
  SLUICE_CHECK(vgpu < vgpus_.size() && vgpus_[vgpu].present);
  SLUICE_CHECK(vgpus_[vgpu].sessions == 0 && vgpus_[vgpu].held_bytes == 0);
  vgpus_[vgpu] = {};
}

void QuotaLedger::add_session(Vgpu vgpu, Session session) {
  SLUICE_CHECK(vgpu < vgpus_.size() && vgpus_[vgpu].present);
  if (session >= sessions_.size()) sessions_.resize(session + 1);
  SLUICE_CHECK(!sessions_[session].present);
  sessions_[session] = {.present = true, .vgpu = vgpu};
  ++vgpus_[vgpu].sessions;
}

uint64_t QuotaLedger::remove_session(Session session) {
  SessionAccount* s = find(session);
  if (!s) return 0;
  const uint64_t bytes = s->held_bytes;
  VgpuAccount& v = vgpus_[s->vgpu];
  v.held_bytes -= bytes;
  held_bytes_ -= bytes;
  --v.sessions;
  *s = {};
  return bytes;
}

Result<void> QuotaLedger::lease(Session session, uint64_t guest_bytes) {
  SessionAccount* s = find(session);
  if (!s) return Error{EINVAL, "a lease for a session that is not there"};
  if (guest_bytes == 0) return Error{EINVAL, "a lease of 0 bytes"};
  VgpuAccount& v = vgpus_[s->vgpu];
  // Subtractions, because guest_bytes may be anything up to 2^64 - 1.
  const uint64_t vgpu_free = v.limit_bytes > v.held_bytes ? v.limit_bytes - v.held_bytes : 0;
  if (guest_bytes > vgpu_free)
    return Error{ENOMEM, "over the vGPU's limit of " + std::to_string(v.limit_bytes) + " bytes (" +
                             std::to_string(v.held_bytes) + " held)"};
  if (guest_bytes > total_bytes_ - held_bytes_)
    return Error{ENOMEM, "over the GPU's " + std::to_string(total_bytes_) + " bytes (" +
                             std::to_string(held_bytes_) + " held by all vGPUs)"};
  if (kept_for_others(v, guest_bytes) > total_bytes_ - held_bytes_ - guest_bytes)
    return Error{ENOMEM, "the rest of the GPU's " + std::to_string(total_bytes_) +
                             " is kept for other vGPUs (" + std::to_string(v.held_bytes) +
                             " held)"};
  s->held_bytes += guest_bytes;
  v.held_bytes += guest_bytes;
  held_bytes_ += guest_bytes;
  return {};
}

// Of what is free, if v asks for so much; 0 within its part.
uint64_t QuotaLedger::kept_for_others(const VgpuAccount& v, uint64_t guest_bytes) const {
  if (rest_ == Rest::kFirstCome) return 0;
  const auto present = static_cast<uint64_t>(
      std::count_if(vgpus_.begin(), vgpus_.end(), [](const auto& o) { return o.present; }));
  const uint64_t part = std::clamp<uint64_t>(total_bytes_ / (present + 1), 1, kLargestPart);
  if (v.held_bytes + guest_bytes <= part) return 0;
  uint64_t kept = part;
  for (const VgpuAccount& o : vgpus_)
    if (o.present && &o != &v) kept += part - std::min(part, o.held_bytes);
  return kept;
}

Result<void> QuotaLedger::give_back(Session session, uint64_t guest_bytes) {
  SessionAccount* s = find(session);
  if (!s) return Error{EINVAL, "bytes given back for a session that is not there"};
  if (guest_bytes > s->held_bytes)
    return Error{EINVAL, "more given back (" + std::to_string(guest_bytes) +
                             " bytes) than is held (" + std::to_string(s->held_bytes) + ")"};
  s->held_bytes -= guest_bytes;
  vgpus_[s->vgpu].held_bytes -= guest_bytes;
  held_bytes_ -= guest_bytes;
  return {};
}

Result<void> QuotaLedger::move(Session from, Session to, uint64_t guest_bytes) {
  SessionAccount* receiver = find(to);
  if (!receiver) return Error{EINVAL, "bytes moved to a session that is not there"};
  if (auto given = give_back(from, guest_bytes); !given) return given;
  SLUICE_CHECK(receiver->vgpu == sessions_[from].vgpu);
  receiver->held_bytes += guest_bytes;
  vgpus_[receiver->vgpu].held_bytes += guest_bytes;
  held_bytes_ += guest_bytes;
  return {};
}

uint64_t QuotaLedger::held_by_vgpu(Vgpu vgpu) const {
  return vgpu < vgpus_.size() ? vgpus_[vgpu].held_bytes : 0;
}
uint64_t QuotaLedger::held_by_session(Session session) const {
  return session < sessions_.size() ? sessions_[session].held_bytes : 0;
}
uint64_t QuotaLedger::limit(Vgpu vgpu) const {
  return vgpu < vgpus_.size() ? vgpus_[vgpu].limit_bytes : 0;
}

}  // namespace sluice::core
