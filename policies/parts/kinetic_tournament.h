// SPDX-License-Identifier: Apache-2.0
// KineticTournament: who of a set of small dense ids has the highest (or lowest) value now, where
// each value is a line over time, slope * (t + offset). A tree of matches, each of which knows
// until when its result holds (kinetic data structures: Basch, Guibas, Hershberger 1997): a look
// costs O(1) while no result has changed and O(log n) for each that has; setting or removing a line
// O(log n). Times never go backwards. Pure; one thread; for policies.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace sluice::policy {

template <bool kHighest>
class KineticTournament {
 public:
  static constexpr uint32_t kNobody = 0xffffffffu;

  // Equal values: the smaller `rank`, then the smaller id.
  void set(double now, uint32_t id, double slope, double offset, uint64_t rank) {
    if (id >= leaves_) grow(now, id + 1);
    lines_[id] = {slope, offset, rank};
    climb(now, id, id);
  }
  void remove(double now, uint32_t id) {
    if (id < leaves_ && nodes_[leaves_ + id].winner != kNobody) climb(now, id, kNobody);
  }
  uint32_t best(double now) {
    if (leaves_ == 0) return kNobody;
    refresh(now, 1);
    return nodes_[1].winner;
  }

 private:
  struct Line {
    double slope = 0, offset = 0;
    uint64_t rank = 0;
    double at(double t) const { return slope * (t + offset); }
  };
  struct Node {
    uint32_t winner = kNobody;
    double until = kForEver;  // the results below and here hold so long
  };
  static constexpr double kForEver = std::numeric_limits<double>::infinity();

  void grow(double now, uint32_t wanted) {
    uint32_t leaves = std::max(leaves_, 1u);
    while (leaves < wanted) leaves *= 2;
    std::vector<Node> old = std::move(nodes_);
    nodes_.assign(2 * leaves, Node{});
    for (uint32_t i = 0; i < leaves_; ++i) nodes_[leaves + i] = old[leaves_ + i];
    leaves_ = leaves;
    lines_.resize(leaves);
    for (uint32_t n = leaves; n-- > 1;) play(now, n);
  }
  void climb(double now, uint32_t id, uint32_t winner) {
    refresh(now, 1);
    nodes_[leaves_ + id].winner = winner;
    for (uint32_t n = (leaves_ + id) / 2; n >= 1; n /= 2) play(now, n);
  }
  void refresh(double now, uint32_t n) {
    if (nodes_[n].until > now) return;
    refresh(now, 2 * n);
    refresh(now, 2 * n + 1);
    play(now, n);
  }
  bool beats(double now, uint32_t a, uint32_t b) const {
    const double x = lines_[a].at(now), y = lines_[b].at(now);
    if (x != y) return kHighest ? x > y : x < y;
    return lines_[a].rank != lines_[b].rank ? lines_[a].rank < lines_[b].rank : a < b;
  }
  void play(double now, uint32_t n) {
    const Node &l = nodes_[2 * n], &r = nodes_[2 * n + 1];
    Node& node = nodes_[n];
    node.until = std::min(l.until, r.until);
    if (l.winner == kNobody || r.winner == kNobody) {
      node.winner = l.winner == kNobody ? r.winner : l.winner;
      return;
    }
    const bool left = beats(now, l.winner, r.winner);
    node.winner = left ? l.winner : r.winner;
    const Line& w = lines_[node.winner];
    const Line& o = lines_[left ? r.winner : l.winner];
    // The loser overtakes where the lines cross, if it gains at all.
    const double gain = kHighest ? o.slope - w.slope : w.slope - o.slope;
    if (gain <= 0) return;
    const double gap = kHighest ? w.at(now) - o.at(now) : o.at(now) - w.at(now);
    // Later than now in any case, so that a look ends; rounding costs a result a moment at most.
    node.until = std::min(node.until, std::max(now + gap / gain, std::nextafter(now, kForEver)));
  }

  uint32_t leaves_ = 0;
  std::vector<Node> nodes_;  // 1: the root; leaves_ + id: id's
  std::vector<Line> lines_;
};

}  // namespace sluice::policy
