// SPDX-License-Identifier: Apache-2.0
// What the stream engine's tests share: a driver made of queues, whose launches run a task per step
// and leave when the evict word says so, and programs of operations that are run on it. Tests only;
// one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

struct FakeWork : Work {
  explicit FakeWork(int op_id, int op_tasks) : id(op_id), tasks(op_tasks) { ++alive; }
  ~FakeWork() override { --alive; }
  int id;
  int tasks;  // effects it has
  int done = 0;
  uint64_t expected_ns = 0;
  int begun = 0;
  int piece = 0;  // of so many effects it is queued, one after the other; 0: whole
  int queued = 0;
  bool open = false;  // a piece may follow
  uint32_t generation = 0;
  bool ran_any = false;
  static inline int alive = 0;
};

struct Effect {
  int op;
  int part;
};

class FakeDriver : public EngineDriver {
 public:
  CUresult launch(StreamId stream, Work& work, const Grant& grant, const Work* pred, bool again,
                  uint64_t) override {
    auto& w = static_cast<FakeWork&>(work);
    const uint32_t generation = grant.generation;
    EXPECT_TRUE(host->grant & SLUICE_GRANT_OPEN) << "launched through a closed gate";
    EXPECT_EQ(generation, SLUICE_GRANT_GENERATION(host->grant));
    EXPECT_EQ(again, w.begun > 0);
    ++w.begun;
    w.generation = generation;
    expect_whole(stream);
    if (w.piece != 0) {
      w.queued = w.done;
      w.ran_any = false;
      w.open = true;
      open[stream] = true;
      preds[&w] = static_cast<const FakeWork*>(pred);
      push_piece(stream, w);
      ++launches_queued;
      return CUDA_SUCCESS;
    }
    queues[stream].push_back({Item::kLaunch, &w, static_cast<const FakeWork*>(pred), generation});
    ++launches_queued;
    return CUDA_SUCCESS;
  }
  bool comes_in_pieces(const Work& work) const override {
    return static_cast<const FakeWork&>(work).piece != 0;
  }
  CUresult more(StreamId stream, Work& work, bool stop, uint64_t, bool* whole) override {
    auto& w = static_cast<FakeWork&>(work);
    EXPECT_TRUE(w.open && open[stream]);
    const bool evicted = static_cast<uint32_t>(signal->evict) >= w.generation;
    // The next one when the one before has begun.
    if (!stop && !evicted && w.queued < w.tasks &&
        (w.done > w.queued - w.piece || queues[stream].empty()))
      push_piece(stream, w);
    *whole = stop || evicted || w.queued >= w.tasks;
    if (*whole) w.open = open[stream] = false;
    return CUDA_SUCCESS;
  }
  CUresult issue(StreamId stream, OpKind kind, Work& work, uint64_t) override {
    auto& w = static_cast<FakeWork&>(work);
    expect_whole(stream);
    if (refuse.count(w.id)) return refuse[w.id];
    if (kind == OpKind::kOpaque || kind == OpKind::kBulk) {
      EXPECT_TRUE(host->grant & SLUICE_GRANT_OPEN);
    }
    launches_queued += kind == OpKind::kOpaque;
    queues[stream].push_back({kind == OpKind::kOpaque      ? Item::kOpaque
                              : kind == OpKind::kValueWait ? Item::kValueWait
                                                           : Item::kWork,
                              &w, nullptr, 0});
    return CUDA_SUCCESS;
  }
  bool write_end_word(StreamId stream, uint64_t, uint32_t word) override {
    words.emplace_back(stream, word);
    return true;
  }
  CUresult mark(StreamId stream, uint64_t* marker) override {
    expect_whole(stream);
    *marker = next_marker++;
    queues[stream].push_back({Item::kMarker, nullptr, nullptr, 0, *marker});
    return CUDA_SUCCESS;
  }
  CUresult query(uint64_t marker) override {
    if (broken != CUDA_SUCCESS) return broken;
    return reached.erase(marker) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  CUresult idle(StreamId stream) override {
    EXPECT_FALSE(drained_streams.count(stream)) << "the driver's stream is gone";
    if (broken != CUDA_SUCCESS) return broken;
    return queues[stream].empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  LaunchEnd launch_end(Work& work) override {
    auto& w = static_cast<FakeWork&>(work);
    if (w.done == w.tasks) return LaunchEnd::kDone;
    bool evicted = static_cast<uint32_t>(signal->evict) >= w.generation;
    return evicted || w.ran_any ? LaunchEnd::kLeft : LaunchEnd::kStuck;
  }
  uint64_t expected_ns(const Work& w) const override {
    return static_cast<const FakeWork&>(w).expected_ns;
  }
  void opaque_ended(StreamId stream, std::span<Work* const> works, bool, uint64_t) override {
    ended.emplace_back(stream, std::vector<int>{});
    for (const Work* work : works)
      ended.back().second.push_back(static_cast<const FakeWork*>(work)->id);
  }
  void complete(uint64_t token, CUresult status) override {
    EXPECT_TRUE(completed.emplace(token, status).second) << "token completed twice";
    completed_at[token] = effects.size();
  }
  void reached_host_func(uint64_t token) override { host_funcs.push_back(token); }
  void async_error(CUresult status) override { async_errors.push_back(status); }
  void drained(StreamId stream) override { drained_streams.insert(stream); }

  // Lets the front of a stream's queue do one step. False: nothing to do there.
  bool step(StreamId stream) {
    auto& q = queues[stream];
    if (q.empty()) return false;
    Item& item = q.front();
    switch (item.kind) {
      case Item::kLaunch: {
        FakeWork& w = *item.work;
        if (!item.started) w.ran_any = false;
        item.started = true;
        if (item.pred && item.pred->done != item.pred->tasks) {
          q.pop_front();  // its leaders leave at once
        } else if (w.done == w.tasks || static_cast<uint32_t>(signal->evict) >= item.generation) {
          q.pop_front();
        } else {
          effects.push_back({w.id, w.done++});
          w.ran_any = true;
        }
        return true;
      }
      case Item::kPiece: {
        FakeWork& w = *item.work;
        // Once it is queued nothing keeps it from running to its end.
        if ((item.pred && item.pred->done != item.pred->tasks) || w.done >= item.end) {
          q.pop_front();
        } else {
          effects.push_back({w.id, w.done++});
          w.ran_any = true;
        }
        return true;
      }
      case Item::kOpaque:
      case Item::kWork: {
        FakeWork& w = *item.work;
        effects.push_back({w.id, w.done++});
        if (w.done == w.tasks) q.pop_front();
        return true;
      }
      case Item::kValueWait:
        if (!value) return false;
        q.pop_front();
        return true;
      case Item::kMarker:
        reached.insert(item.marker);
        q.pop_front();
        return true;
    }
    return false;
  }
  bool empty() const {
    for (const auto& [id, q] : queues)
      if (!q.empty()) return false;
    return true;
  }

  struct Item {
    enum Kind { kLaunch, kPiece, kOpaque, kWork, kValueWait, kMarker } kind;
    FakeWork* work;
    const FakeWork* pred;
    uint32_t generation;
    uint64_t marker = 0;
    bool started = false;
    int end = 0;  // kPiece
  };
  void push_piece(StreamId stream, FakeWork& w) {
    w.queued = std::min(w.queued + w.piece, w.tasks);
    Item item{Item::kPiece, &w, preds[&w], w.generation};
    item.end = w.queued;
    queues[stream].push_back(item);
  }
  void expect_whole(StreamId stream) {
    EXPECT_FALSE(open[stream]) << "behind a launch that is not whole";
  }
  sluice_host_page* host = nullptr;
  sluice_signal_page* signal = nullptr;
  std::map<StreamId, std::deque<Item>> queues;
  std::map<StreamId, bool> open;
  std::map<FakeWork*, const FakeWork*> preds;
  std::set<uint64_t> reached;
  std::vector<Effect> effects;
  std::map<uint64_t, CUresult> completed;
  std::map<uint64_t, size_t> completed_at;
  std::vector<uint64_t> host_funcs;
  std::vector<std::pair<StreamId, std::vector<int>>> ended;  // opaque_ended()
  std::vector<std::pair<StreamId, uint32_t>> words;
  std::vector<CUresult> async_errors;
  std::set<StreamId> drained_streams;
  std::map<int, CUresult> refuse;
  CUresult broken = CUDA_SUCCESS;
  bool value = false;
  uint64_t next_marker = 1;
  int launches_queued = 0;
};

// A session's pages, gate, driver and engine, with sluiced's side of the gate protocol.
struct Bench {
  explicit Bench(EngineLimits limits = {})
      : gate(&host, &signal, &report, 0, [this] { ++rings; }), engine(driver, gate, limits) {
    driver.host = &host;
    driver.signal = &signal;
    grant();
  }
  void grant() {
    ++generation;
    host.grant = generation | SLUICE_GRANT_OPEN;
  }
  void take() {
    host.grant = generation | SLUICE_GRANT_CONTENDED;
    signal.evict = SLUICE_EVICT_ALL_SMS(generation);
  }
  bool has_left() const { return report.in_flight == 0 || report.left_generation >= generation; }
  void poll() { engine.poll(now); }

  sluice_host_page host{};
  sluice_signal_page signal{};
  sluice_report_header report{};
  int rings = 0;
  uint32_t generation = 0;
  uint64_t now = 1;
  Gate gate;
  FakeDriver driver;
  StreamEngine engine;
};

// --- programs ---

enum class P { kLaunch, kOpaque, kCopy, kBulk, kRecord, kWait, kSync };
struct Step {
  P what;
  int stream;   // index of the program's streams; 0 is the legacy stream
  int arg = 1;  // tasks, or the event
};
struct Program {
  std::vector<StreamKind> streams;
  std::vector<Step> steps;
};

// For each step the set of steps that CUDA completes before it begins.
inline std::vector<uint64_t> ancestors(const Program& p) {
  std::vector<uint64_t> before(p.steps.size(), 0);
  std::map<int, int> newest_record;  // event -> step
  for (size_t i = 0; i < p.steps.size(); ++i) {
    auto need = [&](size_t j) { before[i] |= before[j] | (1ull << j); };
    const StreamKind kind = p.streams[p.steps[i].stream];
    for (size_t j = 0; j < i; ++j) {
      const StreamKind other = p.streams[p.steps[j].stream];
      if (p.steps[j].stream == p.steps[i].stream ||
          (kind == StreamKind::kLegacy && other == StreamKind::kBlocking) ||
          (kind == StreamKind::kBlocking && other == StreamKind::kLegacy)) {
        need(j);
      }
    }
    if (p.steps[i].what == P::kRecord) newest_record[p.steps[i].arg] = static_cast<int>(i);
    if (p.steps[i].what == P::kWait && newest_record.count(p.steps[i].arg)) {
      need(newest_record[p.steps[i].arg]);
    }
  }
  return before;
}

inline bool has_effects(P what) { return what < P::kRecord; }

// The program as text, for the trace of a failing test.
inline std::string to_text(const Program& p) {
  static const char* const kNames[] = {"launch", "opaque", "copy", "bulk",
                                       "record", "wait",   "sync"};
  static const char* const kKinds[] = {"legacy", "blocking", "non-blocking"};
  std::string text;
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    text += std::to_string(i) + ": stream " + std::to_string(s.stream) + " (" +
            kKinds[static_cast<int>(p.streams[s.stream])] + ") " +
            kNames[static_cast<int>(s.what)] + " " + std::to_string(s.arg) + "\n";
  }
  return text;
}

class Runner {
 public:
  explicit Runner(const Program& program, EngineLimits limits = {}) : p_(program), b(limits) {
    for (StreamKind kind : p_.streams) streams.push_back(b.engine.add_stream(1, kind));
  }
  bool pieces = false;  // two launches of three are queued piece by piece
  uint64_t expected_ns = 0;
  void submit_all() {
    while (submitted < p_.steps.size()) submit_one();
  }
  bool submit_one() {
    if (submitted == p_.steps.size()) return false;
    const Step& s = p_.steps[submitted];
    const int id = static_cast<int>(submitted);
    const StreamId stream = streams[s.stream];
    switch (s.what) {
      case P::kLaunch:
      case P::kOpaque:
      case P::kCopy:
      case P::kBulk: {
        auto w = std::make_shared<FakeWork>(id, s.arg);
        w->expected_ns = expected_ns;
        OpKind kind = s.what == P::kLaunch   ? OpKind::kLaunch
                      : s.what == P::kOpaque ? OpKind::kOpaque
                      : s.what == P::kBulk   ? OpKind::kBulk
                                             : OpKind::kWork;
        if (pieces && kind == OpKind::kLaunch && id % 3 != 1) w->piece = 1 + id % 4;
        b.engine.submit(stream, kind, std::move(w), s.what == P::kCopy ? 1000 + id : 0, b.now);
        break;
      }
      case P::kRecord:
        events[s.arg] = b.engine.submit_record(stream, std::make_shared<FakeWork>(id, 1), b.now);
        break;
      case P::kWait:
        b.engine.submit_wait(stream, events[s.arg], b.now);
        break;
      case P::kSync:
        b.engine.notify_stream(stream, 1000 + id, b.now);
        break;
    }
    ++submitted;
    return true;
  }
  // The driver's streams in turn, one step each time. False: none has anything to do.
  bool device_step() {
    for (size_t tries = 0; tries < streams.size(); ++tries) {
      turn = (turn + 1) % streams.size();
      if (b.driver.step(streams[turn])) return true;
    }
    return false;
  }
  void finish() {
    for (int i = 0; i < 100000; ++i) {
      b.poll();
      if (!device_step() && b.engine.queued() == 0) return;
    }
    FAIL() << "the program does not come to its end";
  }
  void check() {
    std::vector<size_t> first(p_.steps.size(), SIZE_MAX), last(p_.steps.size(), 0);
    std::vector<int> parts(p_.steps.size(), 0);
    for (size_t t = 0; t < b.driver.effects.size(); ++t) {
      const Effect& e = b.driver.effects[t];
      if (!has_effects(p_.steps[e.op].what)) continue;
      ASSERT_EQ(e.part, parts[e.op]) << "a task of step " << e.op << " ran twice or out of turn";
      ++parts[e.op];
      first[e.op] = std::min(first[e.op], t);
      last[e.op] = t;
    }
    auto before = ancestors(p_);
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      if (has_effects(p_.steps[i].what)) {
        ASSERT_EQ(parts[i], p_.steps[i].arg) << "step " << i;
        for (size_t j = 0; j < i; ++j) {
          if ((before[i] >> j & 1) && has_effects(p_.steps[j].what)) {
            ASSERT_LT(last[j], first[i]) << "step " << i << " began before step " << j << " ended";
          }
        }
      } else if (p_.steps[i].what == P::kSync) {
        ASSERT_TRUE(b.driver.completed.count(1000 + i)) << "synchronise " << i << " never returned";
        for (size_t j = 0; j < i; ++j) {
          if ((before[i] >> j & 1) && has_effects(p_.steps[j].what)) {
            ASSERT_LT(last[j], b.driver.completed_at[1000 + i]);
          }
        }
      }
    }
    EXPECT_EQ(b.report.demand, 0u);
    EXPECT_EQ(b.report.in_flight, 0u);
    EXPECT_FALSE(b.engine.in_flight());
    EXPECT_EQ(FakeWork::alive, 0) << "work is kept after its end";
    EXPECT_TRUE(b.driver.async_errors.empty());
    EXPECT_EQ(b.engine.counters().launches, b.engine.counters().launches_done);
  }

  Program p_;
  Bench b;
  std::vector<StreamId> streams;
  std::map<int, std::shared_ptr<EventRecord>> events;
  size_t submitted = 0;
  size_t turn = 0;
};

inline constexpr auto kLegacy = StreamKind::kLegacy;
inline constexpr auto kBlocking = StreamKind::kBlocking;
inline constexpr auto kNonBlocking = StreamKind::kNonBlocking;

inline const Program kChains[] = {
    // Dependent launches in one stream.
    {{kLegacy}, {{P::kLaunch, 0, 3}, {P::kLaunch, 0, 2}, {P::kLaunch, 0, 3}, {P::kSync, 0}}},
    // A copy and an opaque launch between launches.
    {{kLegacy, kNonBlocking},
     {{P::kLaunch, 1, 3},
      {P::kCopy, 1},
      {P::kLaunch, 1, 2},
      {P::kLaunch, 1, 2},
      {P::kOpaque, 1, 2},
      {P::kLaunch, 1, 2},
      {P::kCopy, 1},
      {P::kSync, 1}}},
    // A stream that waits for an event behind launches of another; the event is recorded again.
    {{kLegacy, kNonBlocking, kNonBlocking},
     {{P::kLaunch, 1, 3},
      {P::kRecord, 1, 7},
      {P::kWait, 2, 7},
      {P::kLaunch, 2, 2},
      {P::kLaunch, 1, 2},
      {P::kRecord, 1, 7},
      {P::kCopy, 2},
      {P::kWait, 2, 7},
      {P::kLaunch, 2, 2},
      {P::kSync, 2}}},
    // The legacy stream between blocking ones; a non-blocking one beside them.
    {{kLegacy, kBlocking, kBlocking, kNonBlocking},
     {{P::kLaunch, 1, 2},
      {P::kLaunch, 2, 3},
      {P::kLaunch, 3, 2},
      {P::kLaunch, 0, 2},
      {P::kCopy, 0},
      {P::kLaunch, 1, 2},
      {P::kLaunch, 2, 1},
      {P::kSync, 0},
      {P::kLaunch, 1, 1}}},
};

// How sluiced behaves after it has taken the GPU.
enum class Back { kWhenLeft, kAtOnce };

inline void run_with_evictions(const Program& p, const std::set<int>& at, Back back, int poll_every,
                               int* steps_taken = nullptr) {
  Runner r(p);
  r.pieces = poll_every != 1;
  r.submit_all();
  int step = 0;
  bool closed = false;
  for (; step < 10000; ++step) {
    if (at.count(step)) {
      r.b.take();
      closed = true;
      if (back == Back::kAtOnce) {
        r.b.grant();
        closed = false;
      }
    }
    if (step % poll_every == 0) r.b.poll();
    bool moved = r.device_step();
    if (closed && !moved) {
      r.b.poll();
      if (!r.b.driver.empty()) continue;
      r.b.poll();
      ASSERT_TRUE(r.b.has_left()) << "sluiced would wait for ever";
      r.b.grant();
      closed = false;
    }
    if (!moved && !closed) {
      r.b.poll();
      if (r.b.engine.queued() == 0) break;
    }
  }
  if (closed) r.b.grant();
  r.finish();
  r.check();
  if (steps_taken) *steps_taken = step;
}

}  // namespace sluice::worker
