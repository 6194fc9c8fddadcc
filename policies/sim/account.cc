// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/account.h"

#include <algorithm>
#include <cmath>

namespace sluice::policy::sim {

Account::Account(const Workload& w, Outcome& out) : out_(out), window_ns_(w.share_window_ns) {
  members_.resize(w.vgpus.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].weight = w.vgpus[i].share.weight;
    members_[i].compared = w.vgpus[i].compared;
    compared_count_ += w.vgpus[i].compared;
  }
  parts_.resize(kWindowParts);
}

void Account::pass(uint64_t now_ns) {
  const uint64_t dt = now_ns - last_ns_;
  last_ns_ = now_ns;
  if (busy_count_ >= 2) v_ += held_now_ / busy_weight_;
  held_now_ = 0;
  if (busy_count_) out_.some_work_ns += dt;
  if (compared_busy_ == compared_count_ && compared_count_ >= 2) {
    out_.all_contended_ns += dt;
    part_ns_ += dt;
    if (part_ns_ >= window_ns_ / kWindowParts && !full()) end_window_part();
  }
}

void Account::set_busy(VgpuId v, bool busy) {
  Member& m = members_[v];
  if (m.busy == busy) return;
  if (m.contended) close(v);
  m.busy = busy;
  busy_count_ += busy ? 1 : -1u;
  busy_weight_ += busy ? m.weight : -m.weight;
  if (!busy_count_) busy_weight_ = 0;
  if (m.compared) compared_busy_ += busy ? 1 : -1u;
  if (busy) {
    m.busy_since_ns = last_ns_;
  } else {
    out_.vgpus[v].busy_ns += last_ns_ - m.busy_since_ns;
  }
  note_wait(v, last_ns_);
  update_contended();
  if (busy && busy_count_ >= 2 && !m.contended) open(m);
}

void Account::set_weight(VgpuId v, uint32_t weight) {
  Member& m = members_[v];
  if (m.weight == weight) return;
  weights_fixed_ = false;
  const bool was = m.contended;
  if (was) close(v);
  if (m.busy) busy_weight_ += weight - m.weight;
  m.weight = weight;
  if (was) open(m);
  part_ns_ = 0;
  part_number_ = 0;
  for (Member& x : members_) x.window_got = 0;
}

void Account::set_holding(VgpuId v, bool holding, uint64_t now_ns) {
  Member& m = members_[v];
  if (m.holding == holding) return;
  m.holding = holding;
  note_lag(v);
  note_wait(v, now_ns);
}

// Only the step between one and two with work changes who is contended besides the one that
// changed.
void Account::update_contended() {
  if (busy_count_ > 2) return;
  for (VgpuId v = 0; v < members_.size(); ++v) {
    const bool is = contends(members_[v]);
    if (members_[v].contended && !is)
      close(v);
    else if (!members_[v].contended && is)
      open(members_[v]);
  }
}

void Account::open(Member& m) {
  m.contended = true;
  m.v_mark = v_;
  m.got = 0;
}

void Account::close(VgpuId v) {
  note_lag(v);
  Member& m = members_[v];
  out_.vgpus[v].got_sm_ns += m.got;
  out_.vgpus[v].entitled_sm_ns += m.weight * (v_ - m.v_mark);
  m.contended = false;
}

void Account::note_lag(VgpuId v) {
  Member& m = members_[v];
  if (!m.contended) return;
  const double lag = std::abs(m.weight * (v_ - m.v_mark) - m.got);
  out_.vgpus[v].lag_max_sm_ns = std::max(out_.vgpus[v].lag_max_sm_ns, lag);
}

void Account::note_wait(VgpuId v, uint64_t now_ns) {
  Member& m = members_[v];
  const bool waits = m.busy && !m.holding;
  if (waits == m.waits) return;
  m.waits = waits;
  if (waits) {
    m.waits_since_ns = now_ns;
  } else {
    out_.vgpus[v].longest_wait_ns =
        std::max(out_.vgpus[v].longest_wait_ns, now_ns - m.waits_since_ns);
  }
}

void Account::end_window_part() {
  std::vector<double>& part = parts_[part_number_ % kWindowParts];
  part.resize(members_.size());
  double weight = 0, whole = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    part[i] = members_[i].window_got;
    members_[i].window_got = 0;
  }
  part_ns_ = 0;
  ++parts_ended_;
  if (++part_number_ < kWindowParts) return;
  std::vector<double>& got = got_;
  got.assign(members_.size(), 0);
  for (const auto& p : parts_)
    for (size_t i = 0; i < members_.size(); ++i) got[i] += p[i];
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].compared) continue;
    weight += members_[i].weight;
    whole += got[i];
  }
  if (whole <= 0) return;
  Window window;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].compared) continue;
    const double entitled = whole * members_[i].weight / weight;
    const double error = std::abs(got[i] / entitled - 1);
    window.worst_points = std::max(window.worst_points, std::abs(got[i] - entitled) / whole);
    if (error > window.worst_error) {
      window.worst_error = error;
      window.worst_vgpu = static_cast<uint32_t>(i);
    }
  }
  out_.windows.push_back(window);
}

void Account::finish(uint64_t now_ns) {
  for (VgpuId v = 0; v < members_.size(); ++v) {
    Member& m = members_[v];
    out_.vgpus[v].sm_ns = m.sm_ns;
    if (m.contended) close(v);
    if (m.busy) out_.vgpus[v].busy_ns += now_ns - m.busy_since_ns;
    if (m.waits)
      out_.vgpus[v].longest_wait_ns =
          std::max(out_.vgpus[v].longest_wait_ns, now_ns - m.waits_since_ns);
  }
  if (!weights_fixed_ || out_.all_contended_ns == 0) return;
  double sum = 0, squares = 0, n = 0, weight = 0, whole = 0;
  for (const Member& m : members_) {
    if (!m.compared) continue;
    const double x = m.all_got / m.weight;
    sum += x;
    squares += x * x;
    n += 1;
    weight += m.weight;
    whole += m.all_got;
  }
  if (squares > 0) out_.all_contended_jain = sum * sum / (n * squares);
  if (whole <= 0) return;
  for (const Member& m : members_)
    if (m.compared)
      out_.all_contended_error =
          std::max(out_.all_contended_error, std::abs(m.all_got / (whole * m.weight / weight) - 1));
}

}  // namespace sluice::policy::sim
