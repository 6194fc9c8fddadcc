// SPDX-License-Identifier: Apache-2.0
// explore(): an exhaustive search over the states of a small model, for protocol tests.
//
// A model has
//   State                 trivially copyable, without padding, all bytes meaningful
//   State initial() const
//   void successors(const State&, Emit) const   calls emit(next_state, "step") for every step that
//                                               any party can take
//   const char* violation(const State&) const   what is wrong in this state, or nullptr
//   bool goal(const State&) const               all work is done
// Checked: no reachable state is a violation, and from every reachable state a goal can be reached
// (so no deadlock, no lost wake-up, nothing stuck; a timer or a later event that would repair a
// lost wake-up must not be part of the model). The first problem comes with the shortest trace to
// it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace sluice::model {

struct Exploration {
  size_t states = 0, edges = 0;
  bool complete = false;           // the search was not cut at max_states
  std::string problem;             // empty: none
  std::vector<std::string> trace;  // steps from the initial state to the problem

  bool ok() const { return complete && problem.empty(); }
  std::string report() const {
    std::string text = std::to_string(states) + " states, " + std::to_string(edges) + " steps: ";
    text += complete ? (problem.empty() ? "ok" : problem) : "too many states";
    for (const std::string& step : trace) text += "\n  " + step;
    return text;
  }
};

// Set of states with their numbers: open addressing over one vector.
template <class State>
class StateSet {
  static_assert(std::is_trivially_copyable_v<State> &&
                std::has_unique_object_representations_v<State>);

 public:
  StateSet() : slots_(1 << 16, kEmpty) {}
  // Number of `s`; `fresh` says whether it is new.
  uint32_t insert(const State& s, bool& fresh) {
    if ((states_.size() + 1) * 2 > slots_.size()) grow();
    for (size_t i = hash(s) & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i] == kEmpty) {
        fresh = true;
        slots_[i] = static_cast<uint32_t>(states_.size());
        states_.push_back(s);
        return slots_[i];
      }
      if (std::memcmp(&states_[slots_[i]], &s, sizeof s) == 0) {
        fresh = false;
        return slots_[i];
      }
    }
  }
  const State& operator[](size_t i) const { return states_[i]; }
  size_t size() const { return states_.size(); }

 private:
  static constexpr uint32_t kEmpty = 0xffffffffu;
  static uint64_t hash(const State& s) {
    unsigned char bytes[sizeof(State)];
    std::memcpy(bytes, &s, sizeof s);
    uint64_t h = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < sizeof s; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, sizeof s - i < 8 ? sizeof s - i : 8);
      h = (h ^ word) * 0xff51afd7ed558ccdull;
      h ^= h >> 32;
    }
    return h;
  }
  void grow() {
    std::vector<uint32_t> bigger(slots_.size() * 2, kEmpty);
    for (uint32_t n = 0; n < states_.size(); ++n) {
      size_t i = hash(states_[n]) & (bigger.size() - 1);
      while (bigger[i] != kEmpty) i = (i + 1) & (bigger.size() - 1);
      bigger[i] = n;
    }
    slots_ = std::move(bigger);
  }
  std::vector<State> states_;
  std::vector<uint32_t> slots_;
};

template <class Model>
Exploration explore(const Model& model, size_t max_states = 6'000'000) {
  using State = typename Model::State;
  StateSet<State> set;
  struct From {
    uint32_t state;
    const char* step;
  };
  struct Edge {
    uint32_t from, to;
  };
  std::vector<From> from;
  std::vector<Edge> edges;
  Exploration result;

  const auto trace_to = [&](uint32_t n) {
    std::vector<std::string> steps;
    for (; n != 0; n = from[n].state) steps.insert(steps.begin(), from[n].step);
    result.trace = std::move(steps);
    result.states = set.size();
    result.edges = edges.size();
  };

  bool fresh = false;
  set.insert(model.initial(), fresh);
  from.push_back({0, ""});
  for (uint32_t n = 0; n < set.size(); ++n) {
    const State s = set[n];
    if (const char* wrong = model.violation(s)) {
      result.complete = true;
      result.problem = wrong;
      trace_to(n);
      return result;
    }
    model.successors(s, [&](const State& next, const char* step) {
      const uint32_t to = set.insert(next, fresh);
      if (fresh) from.push_back({n, step});
      edges.push_back({n, to});
    });
    if (set.size() > max_states) {
      trace_to(0);
      return result;
    }
  }

  // Backwards from the goals: what cannot reach one is stuck.
  result.complete = true;
  std::vector<uint32_t> begin(set.size() + 1, 0), back(edges.size());
  for (const Edge& e : edges) ++begin[e.to + 1];
  for (size_t i = 0; i < set.size(); ++i) begin[i + 1] += begin[i];
  {
    std::vector<uint32_t> fill(begin.begin(), begin.end() - 1);
    for (const Edge& e : edges) back[fill[e.to]++] = e.from;
  }
  std::vector<char> reaches(set.size(), 0);
  std::vector<uint32_t> todo;
  for (uint32_t n = 0; n < set.size(); ++n)
    if (model.goal(set[n])) reaches[n] = 1, todo.push_back(n);
  while (!todo.empty()) {
    const uint32_t n = todo.back();
    todo.pop_back();
    for (uint32_t i = begin[n]; i < begin[n + 1]; ++i)
      if (!reaches[back[i]]) reaches[back[i]] = 1, todo.push_back(back[i]);
  }
  for (uint32_t n = 0; n < set.size(); ++n)
    if (!reaches[n]) {
      result.problem = "stuck: from here the work can never be completed";
      trace_to(n);
      return result;
    }
  result.states = set.size();
  result.edges = edges.size();
  return result;
}

}  // namespace sluice::model
