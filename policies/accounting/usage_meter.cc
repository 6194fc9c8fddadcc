// SPDX-License-Identifier: Apache-2.0
#include "policies/accounting/usage_meter.h"

#include <algorithm>

namespace sluice::accounting {
namespace {

// What is used at least, as far as its error is bounded.
uint64_t least(const RegisterSource& registers, uint32_t id) {
  const uint64_t used = registers.used_ns(id);
  return used - std::min(used, registers.error_ns(id));
}

}  // namespace

UsageMeter::UsageMeter(const Config& config)
    : config_(config),
      owner_(RegisterSource::kTsgCount, kNobody),
      registers_(config.gap_ns),
      log_(config.log) {
  usable_[static_cast<size_t>(Source::kWords)] = true;
  for (uint32_t t = 0; t < RegisterSource::kTsgCount; ++t) registers_.assign(t, 0);
}

// ---- what the mediator knows -----------------------------------------------------------------

void UsageMeter::add_vgpu(uint64_t now_ns, uint32_t v) {
  if (v >= vgpus_.size()) vgpus_.resize(v + 1);
  vgpus_[v] = Vgpu{};
  vgpus_[v].present = true;
  for (uint32_t id : {run_id(v), ungranted_id(v), switch_id(v)}) registers_.forget(id);
  log_.forget(v);
}

void UsageMeter::remove_vgpu(uint64_t now_ns, uint32_t v) {
  Vgpu* g = find(v);
  if (!g) return;
  on_busy(now_ns, v, false);
  on_left(now_ns, v);
  while (!g->tsgids.empty()) assign(g->tsgids.back(), kNobody);
  std::erase_if(votes_, [&](const auto& vote) { return vote.second.vgpu == v; });
  std::erase(leaving_, v);
  *g = Vgpu{};
}

void UsageMeter::map(uint32_t v, uint32_t id) {
  for (uint32_t t : vgpus_[v].tsgids) registers_.assign(t, id);
}

void UsageMeter::map_shared() {
  registers_.charge_switches_to(holders_.size() == 1 ? switch_id(holders_[0])
                                                     : RegisterSource::kNobody);
  if (shared_group_ == kNobody) return;
  registers_.assign(shared_group_, holders_.size() == 1 ? run_id(holders_[0]) : 0);
}

void UsageMeter::on_granted(uint64_t now_ns, uint32_t v) {
  Vgpu* g = find(v);
  if (!g || g->holds.now) return;
  flip_late(now_ns);
  std::erase(leaving_, v);
  g->holds.now = true;
  g->holds.since_ns = now_ns;
  ++g->holds.grants;
  g->clock.on_granted(now_ns, busy_ > (g->busy ? 1u : 0u));
  holders_.push_back(v);
  if (usable(Source::kSwitchLog)) log_.on_work(now_ns, v, true);
  map(v, run_id(v));
  map_shared();
}

void UsageMeter::on_left(uint64_t now_ns, uint32_t v) {
  Vgpu* g = find(v);
  if (!g || !g->holds.now) return;
  g->holds.ended_ns = g->holds.ns(now_ns);
  g->holds.now = false;
  g->holds.left_ns = now_ns;
  g->clock.on_left(now_ns);
  std::erase(holders_, v);
  if (usable(Source::kSwitchLog)) log_.on_work(now_ns, v, false);
  leaving_.push_back(v);
  map_shared();
}

// Who left longer ago than the grace: what its groups run from now on is without a grant.
void UsageMeter::flip_late(uint64_t now_ns) {
  std::erase_if(leaving_, [&](uint32_t v) {
    if (now_ns < vgpus_[v].holds.left_ns + config_.grace_ns) return false;
    map(v, ungranted_id(v));
    return true;
  });
}

void UsageMeter::on_busy(uint64_t now_ns, uint32_t v, bool busy) {
  Vgpu* g = find(v);
  if (!g || g->busy == busy) return;
  g->busy = busy;
  busy_ += busy ? 1 : -1;
  if (g->holds.now) g->clock.on_report(now_ns, busy);
  update_contended(now_ns);
}

void UsageMeter::update_contended(uint64_t now_ns) {
  for (uint32_t h : holders_)
    vgpus_[h].clock.on_contended(now_ns, busy_ > (vgpus_[h].busy ? 1u : 0u));
}

void UsageMeter::assign(uint32_t tsgid, uint32_t v) {
  if (tsgid >= owner_.size() || owner_[tsgid] == v || tsgid == shared_group_) return;
  if (Vgpu* old = find(owner_[tsgid])) std::erase(old->tsgids, tsgid);
  owner_[tsgid] = kNobody;
  registers_.assign(tsgid, 0);
  Vgpu* g = find(v);
  if (!g) return;
  owner_[tsgid] = v;
  g->tsgids.push_back(tsgid);
  const bool late =
      !g->holds.now && std::find(leaving_.begin(), leaving_.end(), v) == leaving_.end();
  registers_.assign(tsgid, late ? ungranted_id(v) : run_id(v));
}

void UsageMeter::set_groups_missing(uint64_t now_ns, uint32_t v, bool missing) {
  Vgpu* g = find(v);
  if (!g || g->lost.now == missing) return;
  const uint64_t held_ns = g->holds.ns(now_ns);
  g->lost = {.now = missing, .held_ns = held_ns, .ended_ns = g->lost.ns(held_ns)};
}

void UsageMeter::share_group(uint32_t tsgid) {
  if (tsgid >= owner_.size()) return;
  assign(tsgid, kNobody);
  shared_group_ = tsgid;
  map_shared();
}

void UsageMeter::set_usable(uint64_t now_ns, Source source, bool usable) {
  bool& u = usable_[static_cast<size_t>(source)];
  if (u == usable) return;
  rebase(now_ns);
  u = usable;
  if (source == Source::kRegisters) covered_ns_ = std::max(covered_ns_, now_ns);
  if (source != Source::kSwitchLog) return;
  // While it is not read it keeps no edges, which would pile up.
  log_.restart(now_ns);
  for (uint32_t h : holders_) log_.on_work(now_ns, h, usable);
  if (!usable) log_.restart(now_ns);
}

Source UsageMeter::source() const {
  if (usable(Source::kRegisters)) return Source::kRegisters;
  if (usable(Source::kSwitchLog)) return Source::kSwitchLog;
  return Source::kClock;
}

// ---- status registers ------------------------------------------------------------------------

// [from, to) was not read, or what was read is ambiguous.
void UsageMeter::add_blind(uint64_t from_ns, uint64_t to_ns) {
  if (to_ns <= from_ns) return;
  for (Vgpu& g : vgpus_) {
    const Holds& h = g.holds;
    if (!g.present || (!h.now && h.left_ns <= from_ns)) continue;
    const uint64_t begin = h.now ? std::max(from_ns, std::min(h.since_ns, to_ns)) : from_ns;
    // A hold that ended in it began nobody knows when; all of it, then.
    g.reads.add_blind(to_ns - (h.now && h.left_ns <= from_ns ? begin : from_ns));
  }
}

void UsageMeter::learn(uint32_t status0) {
  if (holders_.size() != 1 || SLUICE_STATUS0_CTX_STATUS(status0) != SLUICE_CTX_VALID ||
      !SLUICE_STATUS0_BUSY(status0))
    return;
  const uint32_t tsgid = SLUICE_STATUS0_TSGID(status0), v = holders_[0];
  // What has just left may still be seen in the next one's turn.
  if (owner_[tsgid] != kNobody || tsgid == shared_group_ || !leaving_.empty()) return;
  Vote& vote = votes_[tsgid];
  if (vote.vgpu != v) vote = {.vgpu = v};
  if (vote.last_grant == vgpus_[v].holds.grants) return;
  vote.last_grant = vgpus_[v].holds.grants;
  if (++vote.grants < config_.grants_to_learn) return;
  votes_.erase(tsgid);
  assign(tsgid, v);
}

// vGPUs that had the GPU to themselves while one without a grant was seen on it: only weights, by
// which what is charged to the one is given back to the others.
void UsageMeter::note_taken(uint32_t status0, uint64_t ns) {
  if (holders_.size() != 1 || SLUICE_STATUS0_CTX_STATUS(status0) != SLUICE_CTX_VALID ||
      !SLUICE_STATUS0_BUSY(status0))
    return;
  const uint32_t v = owner_[SLUICE_STATUS0_TSGID(status0)];
  if (v == kNobody || vgpus_[v].holds.now ||
      std::find(leaving_.begin(), leaving_.end(), v) != leaving_.end())
    return;
  vgpus_[holders_[0]].corrected.taken_ns += ns;
}

void UsageMeter::note_unknown(uint32_t status0) {
  const uint32_t tsgid = SLUICE_STATUS0_TSGID(status0);
  unknown_seen_ |= SLUICE_STATUS0_CTX_STATUS(status0) == SLUICE_CTX_VALID &&
                   SLUICE_STATUS0_BUSY(status0) && owner_[tsgid] == kNobody &&
                   tsgid != shared_group_;
}

void UsageMeter::begin_phase(uint64_t now_ns) {
  add_blind(covered_ns_, now_ns);
  covered_ns_ = now_ns;
  registers_.begin_phase();
  in_phase_ = true;
  phase_at_ns_ = 0;
  for (Vgpu& g : vgpus_) g.reads.begin_phase(g.holds.ns(now_ns));
}

// Whether v is seen on the engine, at work.
bool UsageMeter::runs(uint32_t v, uint32_t status0) const {
  if (SLUICE_STATUS0_CTX_STATUS(status0) != SLUICE_CTX_VALID || !SLUICE_STATUS0_BUSY(status0))
    return false;
  const uint32_t tsgid = SLUICE_STATUS0_TSGID(status0);
  return tsgid == shared_group_ || owner_[tsgid] == v;
}

void UsageMeter::sample(uint64_t now_ns, uint32_t status0) {
  if (!in_phase_) return;
  flip_late(now_ns);
  if (learns_) learn(status0);
  note_unknown(status0);
  const bool unread = registers_.sample(now_ns, status0);
  if (phase_at_ns_ != 0 && (unread || blind())) add_blind(phase_at_ns_, now_ns);
  if (phase_at_ns_ != 0 && !unread)
    note_taken(status0, now_ns > phase_at_ns_ ? now_ns - phase_at_ns_ : 0);
  phase_at_ns_ = now_ns;
}

void UsageMeter::end_phase(uint64_t now_ns) {
  if (!in_phase_) return;
  in_phase_ = false;
  registers_.end_phase(0);
  covered_ns_ = std::max(phase_at_ns_, covered_ns_);
  for (Vgpu& g : vgpus_) g.reads.end_phase(g.holds.ns(now_ns));
  covered_ns_ = std::max(covered_ns_, now_ns);
}

void UsageMeter::follow(uint64_t now_ns, uint32_t status0) {
  if (!registers_.follows()) return;
  flip_late(now_ns);
  registers_.follow(now_ns, status0);
  // Read without a gap, or that gap ended it.
  const uint64_t from = covered_ns_;
  covered_ns_ = std::max(covered_ns_, now_ns);
  if (registers_.broke() || blind()) return add_blind(from, covered_ns_);
  for (uint32_t h : holders_)
    vgpus_[h].reads.add_dense(covered_ns_ -
                              std::min(covered_ns_, std::max(from, vgpus_[h].holds.since_ns)));
}

void UsageMeter::point(uint64_t now_ns, const StatusRead& seen, uint64_t from_ns, uint64_t to_ns,
                       uint64_t due_ns, uint32_t half) {
  if (in_phase_ || to_ns <= from_ns) return;
  flip_late(now_ns);
  if (learns_)
    for (const StatusRead::Part& p : seen) learn(p.status0);
  add_blind(covered_ns_, from_ns);
  covered_ns_ = to_ns;
  for (const StatusRead::Part& p : seen) note_unknown(p.status0);
  if (now_ns > due_ns + config_.late_ns) {
    ++late_points_;
    return add_blind(from_ns, to_ns);
  }
  if (blind()) return add_blind(from_ns, to_ns);
  const auto s = static_cast<double>(to_ns - from_ns);
  for (const StatusRead::Part& p : seen)
    note_taken(p.status0, static_cast<uint64_t>(s * seen.part_of(p)));
  for (uint32_t h : holders_) {
    double ran = 0;
    for (const StatusRead::Part& p : seen) ran += runs(h, p.status0) ? seen.part_of(p) : 0;
    vgpus_[h].reads.add(half, s, ran);
  }
  // The others' by what each read stands for: nobody knows for how long they should have run.
  StatusRead others;
  for (const StatusRead::Part& p : seen) {
    const bool granted = std::any_of(holders_.begin(), holders_.end(),
                                     [&](uint32_t h) { return runs(h, p.status0); });
    others.add(granted ? 0 : p.status0, p.ns);
  }
  registers_.point(others, to_ns - from_ns, half);
}

void UsageMeter::end_batch() {
  for (Vgpu& g : vgpus_) g.reads.end_batch();
  registers_.end_batch();
}

// The cycle is that of whoever was read most often: nobody's error weighs more.
AdaptivePoller::Known UsageMeter::known() const {
  AdaptivePoller::Known k;
  double longest = 0, most = 0;
  k.lengths = true;
  for (uint32_t v = 0; v < vgpus_.size(); ++v) {
    const Vgpu& g = vgpus_[v];
    if (!g.present) continue;
    longest = std::max(longest, runs(v).mean_ns());
    if (g.busy && g.holds.grants > 0) k.lengths &= runs(v).known();
    if (g.reads.stood_ns() > most)
      most = g.reads.stood_ns(), k.cycle_ns = registers_.cycle_ns(run_id(v)),
      k.cycle_run_ns = static_cast<uint64_t>(runs(v).mean_ns());
  }
  k.longest_run_ns = static_cast<uint64_t>(longest);
  return k;
}

// ---- switch log, words -----------------------------------------------------------------------

void UsageMeter::on_record(uint64_t time_ns, uint32_t seq, uint32_t tsgid, bool start) {
  if (!usable(Source::kSwitchLog)) return;
  const uint32_t v = tsgid < owner_.size() ? owner_[tsgid] : kNobody;
  log_.on_record({.time_ns = time_ns, .seq = seq, .vgpu = v, .start = start});
}

void UsageMeter::settle_log(uint64_t watermark_ns) {
  if (usable(Source::kSwitchLog)) log_.settle(watermark_ns);
}

void UsageMeter::on_launch_words(uint64_t now_ns, uint32_t v, uint64_t begin_ns, uint64_t end_ns) {
  Vgpu* g = find(v);
  if (!g) return;
  if (!g->words) g->words.emplace();
  // Within the time since the vGPU's first grant; the fusion bounds the sum by what was granted.
  g->words->on_launch(begin_ns, end_ns, 0, now_ns);
}

// What v ran: exactly within phases, by the part of the reads that saw it running in the rest of
// what it held.
Estimate UsageMeter::by_registers(const Vgpu& g, uint32_t v, uint64_t held_ns,
                                  uint64_t open_ns) const {
  const uint64_t phase_ns = in_phase_ ? g.reads.in_phase_ns(held_ns + g.base.held_ns) : 0;
  const Estimate rest = g.reads.outside_phases(held_ns, phase_ns, open_ns);
  return {registers_.used_ns(run_id(v)) + rest.used_ns,
          registers_.error_ns(run_id(v)) + rest.error_ns};
}

// ---- results ---------------------------------------------------------------------------------

Fused UsageMeter::fuse_since_mark(uint64_t now_ns, uint32_t v, Reading* detail) const {
  const Vgpu& g = vgpus_[v];
  const uint64_t held_ns = g.holds.ns(now_ns) - g.base.held_ns;
  const auto note = [&](Source s, const Estimate& e) {
    if (detail) detail->by[static_cast<size_t>(s)] = e;
  };
  // What was held since `t`; a hold that ended before counts whole, which only widens the bound.
  const auto held_since = [&](uint64_t t) {
    if (!g.holds.now && g.holds.left_ns <= t) return uint64_t{0};
    return std::min(now_ns > t ? now_ns - t : 0, held_ns);
  };

  Estimate clock{g.clock.total_ns(now_ns) - g.base.clock_ns,
                 g.clock.error_ns(now_ns) - g.base.clock_error_ns};
  note(Source::kClock, clock);
  uint64_t most_ns = held_ns;
  const uint64_t lost = std::min(g.lost.ns(g.holds.ns(now_ns)), held_ns);

  std::optional<Estimate> log;
  if (usable(Source::kSwitchLog)) {
    const SwitchLog::Totals t = log_.totals(v);
    const uint64_t open = held_since(log_.settled_ns());
    // Residency without end yet: the interval that goes on is counted when it ends.
    const uint64_t ended = t.used_ns + log_.unfinished_ns(v),
                   before = g.base.log.used_ns + g.base.log_unfinished_ns;
    const uint64_t known = ended - std::min(ended, before);
    const uint64_t error = t.error_ns - g.base.log.error_ns;
    log = Estimate{std::min(known + open / 2, clock.used_ns),
                   error + (open + 1) / 2 + clock.error_ns + lost};
    most_ns = std::min(most_ns, known + error + (t.cost_ns - g.base.log.cost_ns) + open + lost);
    note(Source::kSwitchLog, *log);
  }
  std::optional<Estimate> registers;
  if (usable(Source::kRegisters)) {
    registers = by_registers(g, v, held_ns, held_since(covered_ns_));
    registers->error_ns += lost;
    note(Source::kRegisters, *registers);
  }
  std::optional<uint64_t> words;
  if (g.words && usable(Source::kWords)) {
    words = g.words->used_ns();
    note(Source::kWords, {*words, 0});
  }
  if (!registers && !log) return {.charge_ns = clock.used_ns, .error_ns = clock.error_ns};
  return fuse(most_ns, {registers ? registers : log}, words);
}

UsageMeter::Reading UsageMeter::read(uint64_t now_ns, uint32_t v) const {
  Reading r;
  if (v >= vgpus_.size() || !vgpus_[v].present) return r;
  const Vgpu& g = vgpus_[v];
  const Fused f = fuse_since_mark(now_ns, v, &r);
  r.used = {g.base.used.used_ns + f.charge_ns, g.base.used.error_ns + f.error_ns};
  r.held_ns = g.holds.ns(now_ns);
  r.ungranted_ns = g.corrected.extra_ns;
  r.contradictions = g.contradictions + (f.contradiction ? 1 : 0);
  r.words_lie = f.disagrees;
  return r;
}

// What was measured so far stays; from now on other sources measure.
void UsageMeter::rebase(uint64_t now_ns) {
  for (uint32_t v = 0; v < vgpus_.size(); ++v) {
    Vgpu& g = vgpus_[v];
    if (!g.present) continue;
    const Fused f = fuse_since_mark(now_ns, v, nullptr);
    g.contradictions += f.contradiction ? 1 : 0;
    const uint64_t held_ns = g.holds.ns(now_ns);
    g.base = {.held_ns = held_ns,
              .clock_ns = g.clock.total_ns(now_ns),
              .clock_error_ns = g.clock.error_ns(now_ns),
              .log = log_.totals(v),
              .log_unfinished_ns = log_.unfinished_ns(v),
              .used = {g.base.used.used_ns + f.charge_ns, g.base.used.error_ns + f.error_ns}};
    g.reads.restart(held_ns);
    g.lost = {.now = g.lost.now, .held_ns = held_ns, .ended_ns = 0};
    g.words.reset();
    registers_.forget(run_id(v));
  }
  covered_ns_ = std::max(covered_ns_, now_ns);
}

void UsageMeter::take_corrections(uint64_t now_ns, std::vector<Correction>& out) {
  flip_late(now_ns);
  const size_t first = out.size();
  uint64_t stolen = 0;
  double taken = 0;
  const auto taken_from = [&](uint32_t v) {
    return vgpus_[v].corrected.taken_ns + log_.totals(v).taken_ns;
  };
  for (uint32_t v = 0; v < vgpus_.size(); ++v) {
    Vgpu& g = vgpus_[v];
    if (!g.present) continue;
    const SwitchLog::Totals log = log_.totals(v);
    Correction c{v, 0, 0};
    // The log cannot distinguish an owner that runs from an idle one that nobody displaces: beside
    // a holder that launches nothing that would be all of its hold. Registers can.
    const uint64_t outside_ns =
        log.outside_ns - std::min(g.corrected.outside_log_ns, log.outside_ns);
    g.corrected.outside_log_ns = log.outside_ns;
    if (!usable(Source::kRegisters)) g.corrected.outside_ns += outside_ns;
    const uint64_t extra = std::max(least(registers_, ungranted_id(v)), g.corrected.outside_ns);
    if (extra >= g.corrected.extra_ns + config_.least_correction_ns) {
      stolen += c.extra_ns = extra - g.corrected.extra_ns;
      g.corrected.extra_ns = extra;
    }
    const uint64_t switched = usable(Source::kSwitchLog)
                                  ? log.switched_ns
                                  : std::max(log.switched_ns, least(registers_, switch_id(v)));
    if (switched >= g.corrected.switched_ns + config_.least_correction_ns) {
      c.refund_ns = switched - g.corrected.switched_ns;
      g.corrected.switched_ns = switched;
    }
    taken += static_cast<double>(taken_from(v) - g.corrected.refunded_ns);
    out.push_back(c);
  }
  // Time that was used without a grant is refunded to the vGPUs that held the GPU then.
  for (size_t i = first; stolen && i < out.size(); ++i) {
    Vgpu& g = vgpus_[out[i].vgpu];
    const uint64_t all = taken_from(out[i].vgpu);
    if (taken > 0)
      out[i].refund_ns += static_cast<uint64_t>(static_cast<double>(all - g.corrected.refunded_ns) /
                                                taken * static_cast<double>(stolen));
    g.corrected.refunded_ns = all;
  }
  std::erase_if(out, [](const Correction& c) { return c.extra_ns == 0 && c.refund_ns == 0; });
}

}  // namespace sluice::accounting
