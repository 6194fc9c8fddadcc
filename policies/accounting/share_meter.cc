// SPDX-License-Identifier: Apache-2.0
#include "policies/accounting/share_meter.h"

#include "mediator/base/check.h"

namespace sluice::accounting {

void ShareMeter::settle(uint64_t now_ns) {
  const uint64_t dt = started_ && now_ns > last_ns_ ? now_ns - last_ns_ : 0;
  last_ns_ = started_ && now_ns < last_ns_ ? last_ns_ : now_ns;
  started_ = true;
  if (dt == 0 || busy_count_ < 2) return;
  const bool all = busy_count_ == present_count_;
  contended_ns_ += dt;
  if (all) all_contended_ns_ += dt;
  for (const Member holder : holders_) {
    State& h = members_[holder];
    const uint64_t part = dt * h.held;
    entitle(part);
    if (all) h.done.all_gpu_ns += part;
    // A holder that is idle (and about to leave) still holds: none of its contended time.
    if (h.busy) h.done.own_gpu_ns += part;
  }
}

void ShareMeter::entitle(uint64_t part) {
  Node& root = groups_[kRoot];
  contended_gpu_ns_ += part;
  root.entitled += static_cast<double>(part) / static_cast<double>(root.busy_weight);
}

bool ShareMeter::is_within(Group g, Group above) const {
  while (g != kRoot && g != above) g = groups_[g].parent;
  return g == above;
}

// Those above first. In an idle group nobody is entitled to anything.
void ShareMeter::sync(Group g) {
  if (g == kRoot) return;
  Node& n = groups_[g];
  sync(n.parent);
  const double grown = groups_[n.parent].entitled - n.parent_mark;
  if (n.busy_weight > 0) n.entitled += grown * n.weight / static_cast<double>(n.busy_weight);
  n.parent_mark = groups_[n.parent].entitled;
}

// A busy one directly in `g` weighs `to` instead of `from`; 0: it is idle. So up to the first group
// that is busy before and after.
void ShareMeter::reweigh(Group g, uint32_t from, uint32_t to) {
  sync(g);
  for (;;) {
    Node& n = groups_[g];
    const bool before = n.busy_weight > 0;
    n.busy_weight += to;
    n.busy_weight -= from;
    const bool after = n.busy_weight > 0;
    if (g == kRoot || before == after) return;
    from = before ? n.weight : 0;
    to = after ? n.weight : 0;
    g = n.parent;
  }
}

// `own` intervals of a member are the contended ones while it is busy. Everybody's rivals' time is
// the common sum less its own, so that a change of the holder touches one member only. All three
// need its group up to date.
void ShareMeter::open(State& s) {
  s.contended_mark = contended_ns_;
  s.gpu_mark = contended_gpu_ns_;
  s.entitled_mark = groups_[s.group].entitled;
  s.own_gpu_mark = s.done.own_gpu_ns;
}

void ShareMeter::close(State& s) { accumulate(s, s.done); }

void ShareMeter::accumulate(const State& s, Totals& t) const {
  t.own_contended_ns += contended_ns_ - s.contended_mark;
  const uint64_t own = s.done.own_gpu_ns - s.own_gpu_mark;
  t.own_rivals_gpu_ns += contended_gpu_ns_ - s.gpu_mark - own;
  t.own_entitled_ns += static_cast<uint64_t>(
      (groups_[s.group].entitled - s.entitled_mark) * static_cast<double>(s.weight) + 0.5);
}

void ShareMeter::add(uint64_t now_ns, Member m, uint32_t weight, Group group) {
  settle(now_ns);
  if (m >= members_.size()) members_.resize(m + 1);
  SLUICE_CHECK(!members_[m].present && weight > 0);
  members_[m] = State{};
  members_[m].present = true;
  members_[m].weight = weight;
  members_[m].group = has(group) ? group : kRoot;
  ++present_count_;
}

void ShareMeter::remove(uint64_t now_ns, Member m) {
  set_busy(now_ns, m, false);
  set_held(now_ns, m, 0);
  SLUICE_CHECK(members_[m].present);
  members_[m].present = false;
  --present_count_;
}

void ShareMeter::set_share(uint64_t now_ns, Member m, uint32_t weight, Group group) {
  State& s = members_[m];
  SLUICE_CHECK(s.present && weight > 0);
  const bool busy = s.busy;
  set_busy(now_ns, m, false);
  s.weight = weight;
  s.group = has(group) ? group : kRoot;
  set_busy(now_ns, m, busy);
}

void ShareMeter::set_group(uint64_t now_ns, Group group, uint32_t weight, Group parent) {
  settle(now_ns);
  SLUICE_CHECK(group != kRoot && weight > 0);
  if (group >= groups_.size()) groups_.resize(group + 1);
  sync(group);
  Node& n = groups_[group];
  const bool busy = n.busy_weight > 0;
  if (busy) reweigh(n.parent, n.weight, 0);
  n.present = true;
  n.weight = weight;
  n.parent = has(parent) && !is_within(parent, group) ? parent : kRoot;
  sync(n.parent);
  n.parent_mark = groups_[n.parent].entitled;
  if (busy) reweigh(n.parent, 0, weight);
}

void ShareMeter::set_busy(uint64_t now_ns, Member m, bool busy) {
  settle(now_ns);
  State& s = members_[m];
  SLUICE_CHECK(s.present);
  if (s.busy == busy) return;
  reweigh(s.group, busy ? 0 : s.weight, busy ? s.weight : 0);
  if (busy) {
    open(s);
    ++busy_count_;
  } else {
    close(s);
    --busy_count_;
  }
  s.busy = busy;
}

void ShareMeter::set_holder(uint64_t now_ns, Member m) {
  while (!holders_.empty()) set_held(now_ns, holders_.back(), 0);
  if (m != kNobody) set_held(now_ns, m, units_);
}

void ShareMeter::set_held(uint64_t now_ns, Member m, uint32_t units) {
  settle(now_ns);
  SLUICE_CHECK(members_[m].present && units <= units_);
  const bool before = members_[m].held != 0;
  members_[m].held = units;
  if (before == (units != 0)) return;
  if (before)
    std::erase(holders_, m);
  else
    holders_.push_back(m);
}

void ShareMeter::add_used(uint64_t now_ns, Member m, uint64_t gpu_ns) {
  settle(now_ns);
  State& s = members_[m];
  SLUICE_CHECK(s.present);
  if (busy_count_ < 2) return;
  const uint64_t part = gpu_ns * units_;
  entitle(part);
  if (busy_count_ == present_count_) s.done.all_gpu_ns += part;
  if (s.busy) s.done.own_gpu_ns += part;
}

ShareMeter::Totals ShareMeter::totals(uint64_t now_ns, Member m) const {
  ShareMeter at = *this;  // only totals() of people's tools come here; a copy keeps it simple
  at.settle(now_ns);
  const State& s = at.members_[m];
  at.sync(s.group);
  Totals t = s.done;
  if (s.busy) at.accumulate(s, t);
  for (uint64_t* ns : {&t.all_gpu_ns, &t.own_gpu_ns, &t.own_rivals_gpu_ns, &t.own_entitled_ns})
    *ns /= units_;
  return t;
}

uint64_t ShareMeter::all_contended_ns(uint64_t now_ns) const {
  const bool open = started_ && busy_count_ >= 2 && busy_count_ == present_count_;
  return all_contended_ns_ + (open && now_ns > last_ns_ ? now_ns - last_ns_ : 0);
}

}  // namespace sluice::accounting
