// SPDX-License-Identifier: Apache-2.0
// Host: a scheduler with hand-made pages, for tests that say step by step what sluiced does. What
// it did since the last take() is a line of words: "grant0o!2" (session 0: open, contended,
// generation 2; p: part of the GPU, r: recall), "sms0:2=1-3" (SMs 1 and 2, of generation 2),
// "evict0=1", "slice0=2048" (us), "read0", "ring0", "end0".
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mediator/core/scheduler.h"

namespace sluice::core {

inline constexpr uint64_t kMs = 1'000'000;

inline std::string sms_text(const SmSet& sms) {
  std::string text;
  for (SmSet::Range r = sms.next_range(); r.lo < r.hi; r = sms.next_range(r.hi))
    text += (text.empty() ? "" : ",") + std::to_string(r.lo) + "-" + std::to_string(r.hi);
  return text;
}

// Executes actions on pages of its own and writes down what happened.
struct Host {
  explicit Host(SchedulerConfig config = {}) : scheduler(Scheduler::make(config, 0)) {}
  struct Pages {
    uint64_t grant = 0, evict = 0;
    SmSet sms;
    ReportSnapshot report;
    uint64_t starved_ns = 0;  // the answer to kAskStarved
  };
  Pages& page(SessionId s) {
    if (s >= pages.size()) pages.resize(s + 1);
    return pages[s];
  }
  void drain() {
    while (auto a = queue.pop()) {
      const std::string s = std::to_string(a->session);
      switch (a->kind) {
        case Action::Kind::kSetSms:
          page(a->session).sms = a->sms;
          did += "sms" + s + ":" + std::to_string(a->word) + "=" + sms_text(a->sms) + " ";
          break;
        case Action::Kind::kSetGrant:
          page(a->session).grant = a->word;
          did += "grant" + s + (a->word & SLUICE_GRANT_OPEN ? "o" : "c") +
                 (a->word & SLUICE_GRANT_PART ? "p" : "") +
                 (a->word & SLUICE_GRANT_RECALL ? "r" : "") +
                 (a->word & SLUICE_GRANT_KEEP ? "k" : "") +
                 (a->word & SLUICE_GRANT_CONTENDED ? "!" : "") +
                 std::to_string(SLUICE_GRANT_GENERATION(a->word)) + " ";
          break;
        case Action::Kind::kSetEvict:
          page(a->session).evict = a->word;
          did += "evict" + s + "=" + std::to_string(static_cast<uint32_t>(a->word));
          if (a->word != SLUICE_EVICT_ALL_SMS(a->word))
            did +=
                ":" + std::to_string(a->word >> 32 & 0xffff) + "-" + std::to_string(a->word >> 48);
          did += " ";
          break;
        case Action::Kind::kReadReport:
          did += "read" + s + " ";
          scheduler->on_report(now, a->session, page(a->session).report, queue);
          break;
        case Action::Kind::kAskStarved:
          if (on_asked) on_asked();
          if (answers) scheduler->on_starved(now, a->session, page(a->session).starved_ns, queue);
          break;
        case Action::Kind::kRingGate:
          did += "ring" + s + " ";
          break;
        case Action::Kind::kWakeAt:
          wake = a->word;
          break;
        case Action::Kind::kSetSlice:
          did += "slice" + s + "=" + std::to_string(a->word / 1000) + " ";
          break;
        case Action::Kind::kEndSession:
          did += "end" + s + " ";
          break;
        case Action::Kind::kLog:
          if (a->event == LogEvent::kReportViolation) did += "lie" + s + " ";
          if (a->event == LogEvent::kPolicyViolation) did += "policy? ";
          break;
      }
    }
  }
  std::string take() {
    std::string t = std::move(did);
    did.clear();
    if (!t.empty()) t.pop_back();
    return t;
  }
  VgpuId vgpu(uint32_t weight = 100, uint32_t priority = 0) {
    const auto v = scheduler->add_vgpu(now, {.weight = weight, .priority = priority}, queue);
    drain();
    return *v;
  }
  SessionId session(VgpuId v) {
    const auto s = scheduler->add_session(now, v, queue);
    page(*s) = {};
    drain();
    return *s;
  }
  void report(SessionId s, uint32_t demand, uint32_t in_flight, uint32_t left = 0) {
    quietly(s, demand, in_flight);
    auto& r = page(s).report;
    r.guest_left_generation = left;
    scheduler->on_report(now, s, r, queue);
    drain();
  }
  // Changes the page without ringing.
  void quietly(SessionId s, uint32_t demand, uint32_t in_flight) {
    auto& r = page(s).report;
    if (r.guest_in_flight > 0 && in_flight == 0) r.guest_flight_ns += now - r.guest_in_flight_ns;
    r.guest_demand = demand, r.guest_in_flight = in_flight;
  }
  void remove(SessionId s) {
    scheduler->on_session_removed(now, s, queue);
    drain();
  }
  void time(uint64_t ns) {
    now = ns;
    scheduler->on_timer(now, queue);
    drain();
  }

  std::unique_ptr<Scheduler> scheduler;
  ActionQueue queue;
  std::vector<Pages> pages;
  std::string did;
  uint64_t now = kMs, wake = kNever;
  bool answers = true;  // to kAskStarved
  std::function<void()> on_asked;
};

}  // namespace sluice::core
