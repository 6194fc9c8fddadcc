// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/accounting.h"

#include <sys/random.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <unordered_map>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/process/processor_time.h"

namespace sluice {

using accounting::Source;
using accounting::UsageMeter;

namespace {

constexpr uint64_t kMs = 1'000'000;
// A dense phase gives way to whatever else waits after this long.
constexpr uint64_t kSliceNs = 20'000;
constexpr uint64_t kGapNs = 5'000;
constexpr uint64_t kLogNs = 10 * kMs, kSlowLogNs = 100 * kMs;
constexpr uint64_t kCheckNs = 1'000 * kMs;
constexpr uint64_t kChannelsNs = 1'000 * kMs, kMissingChannelsNs = 20 * kMs;
constexpr uint64_t kWordsNs = 100 * kMs;
// While nobody competes: single reads this much rarer, at least this far apart.
constexpr uint64_t kSlowFactor = 10, kSlowStratumNs = 10 * kMs, kSlowRoundNs = 1'000 * kMs;
// Polling goes on for so long after the last holder has left: a synchronous program is back at
// once.
constexpr uint64_t kLingerNs = 200 * kMs;
// The recorder of the switch log hurries on for so long: each change wakes it, and a visitor comes
// hundreds of times a second.
constexpr uint64_t kHurryNs = 500 * kMs;
constexpr uint64_t kTellAgainNs = 10'000 * kMs;
// A worker may be interrupted between its kernel's end and the engine's release: not theft, and not
// worth a warning.
constexpr uint64_t kGraceNs = 2 * kMs, kWorthTellingNs = 50 * kMs;

UsageMeter::Config meter_config() {
  UsageMeter::Config c;
  c.grace_ns = c.log.grace_ns = kGraceNs;
  return c;
}
// A wake-up's cost is measured over at least this many, and taken for a value between these.
constexpr uint64_t kWakesToMeasure = 50, kLeastWakeNs = 3'000, kMostWakeNs = 100'000;

accounting::AdaptivePoller::Config poller_config(const AccountingSettings& s) {
  accounting::AdaptivePoller::Config c;
  c.steady_budget = 0.84 * s.cpu_budget;  // the rest: the log, channels, words, rounds
  // What decides goes by the clock, at once; denser rounds after each change would only cost.
  c.engaged_rounds = 0;
  c.wake_ns =
      30'000;  // a timer, a read and a turn of the loop; measured while it runs (measure_wakes)
  // Not known to guests, so that no program can hide in the pauses.
  if (::getrandom(&c.seed, sizeof c.seed, 0) != sizeof c.seed) c.seed = monotonic_ns();
  return c;
}

}  // namespace

Accounting::Accounting(boost::asio::io_context& io, const AccountingSettings& settings,
                       Correct correct, Seen seen)
    : io_(io),
      settings_(settings),
      correct_(std::move(correct)),
      seen_(std::move(seen)),
      sources_(settings),
      meter_(meter_config()),
      poller_(poller_config(settings)),
      timer_(io) {
  groups_.owner.assign(SLUICE_SOFT_CHANNELS + 1, UsageMeter::kNobody);
  groups_.session.assign(SLUICE_SOFT_CHANNELS + 1, core::kNoSession);
  meter_.learn_groups(settings.nvidia);
  meter_.set_usable(monotonic_ns(), Source::kWords, settings.words && !settings.nvidia);
}

Accounting::~Accounting() = default;

// ---- who there is ----------------------------------------------------------------------------

void Accounting::add_vgpu(core::VgpuId v, const std::string& name) {
  if (v >= names_.size()) names_.resize(v + 1), logged_ns_.resize(v + 1);
  names_[v] = name;
  logged_ns_[v] = 0;
  meter_.add_vgpu(monotonic_ns(), v);
}

void Accounting::remove_vgpu(core::VgpuId v) {
  meter_.remove_vgpu(monotonic_ns(), v);
  for (uint32_t& owner : groups_.owner)
    if (owner == v) owner = UsageMeter::kNobody;
  names_[v].clear();
}

void Accounting::add_session(core::SessionId s, core::VgpuId v, pid_t worker,
                             const sluice_report_header* report,
                             const sluice_launch_records* records) {
  if (s >= sessions_.size()) sessions_.resize(s + 1);
  sessions_[s] = {.vgpu = v, .worker = worker, .report = report, .records = records, .seen = {}};
  next_.channels_wait_ns = kMissingChannelsNs;
  next_.channels_ns = 0;
}

void Accounting::remove_session(core::SessionId s) {
  const uint64_t now = monotonic_ns();
  take_words(now, sessions_[s]);  // the last ones; the pages are still there
  sessions_[s] = MeasuredSession{};
  find_channels(now);
}

void Accounting::event(uint64_t now_ns, core::LogEvent event, core::VgpuId v) {
  switch (event) {
    case core::LogEvent::kGranted:
      meter_.on_granted(now_ns, v);
      poll_.idle_since_ns = 0;
      if (poll_.phase == Phase::kStopped) start();
      return;
    case core::LogEvent::kLeft:
      meter_.on_left(now_ns, v);
      if (meter_.holders() == 0) poll_.idle_since_ns = now_ns;
      return;
    case core::LogEvent::kBusy:
    case core::LogEvent::kIdle:
      meter_.on_busy(now_ns, v, event == core::LogEvent::kBusy);
      // A slow round is cut short when somebody else comes: what is owed is counted from here.
      if (engaged() && poll_.phase == Phase::kSparse && !poll_.engaged_round)
        timer_.at_ns(now_ns, [this] { on_wake(); });
      return;
    default:
      return;
  }
}

// ---- rounds ----------------------------------------------------------------------------------

void Accounting::start() {
  const uint64_t now = monotonic_ns();
  if (sources_.check(now) || !sources_.has_registers()) use_sources(now);
  next_.check_ns = now + kCheckNs;
  begin_round(now);
}

void Accounting::stop(uint64_t now_ns) {
  if (settings_.switch_log_feed) settings_.switch_log_feed->hurry(false, now_ns);
  poll_.phase = Phase::kStopped;
  ++poll_.turn;
  timer_.cancel();
}

void Accounting::begin_round(uint64_t now_ns) {
  const bool was_engaged = std::exchange(poll_.engaged_round, engaged());
  if (poll_.engaged_round || was_engaged) poll_.engaged_ns = now_ns;
  if (settings_.switch_log_feed)
    settings_.switch_log_feed->hurry(now_ns - poll_.engaged_ns < kHurryNs, now_ns);
  // Rounds are cut short as often as vGPUs come and go. A dense phase costs no less for that: the
  // next one begins when the pause would have been over that pays for the last.
  const bool paid = now_ns >= poll_.dense_due_ns;
  if (paid || !poll_.engaged_round) poll_.plan = poller_.next(meter_.busy(), meter_.known());
  const accounting::AdaptivePoller::Plan& plan = poll_.plan;
  ++poll_.turn;
  if (!poll_.engaged_round || !sources_.has_registers()) {
    poll_.stratum_ns =
        poll_.engaged_round ? kLogNs : std::max(plan.stratum_ns * kSlowFactor, kSlowStratumNs);
    poll_.window_ns = 0;
    poll_.pause_end_ns = now_ns + kSlowRoundNs;
    return begin_sparse(now_ns);
  }
  poll_.stratum_ns = plan.stratum_ns;
  poll_.window_ns = plan.window_ns;
  if (!paid) {
    poll_.pause_end_ns = poll_.dense_due_ns;
    return begin_sparse(now_ns);
  }
  poll_.dense_end_ns = now_ns + plan.dense_ns;
  poll_.follow_end_ns = poll_.dense_end_ns + plan.dense_ns / 4;
  poll_.pause_end_ns = poll_.dense_due_ns = poll_.dense_end_ns + plan.pause_ns;
  poll_.phase = Phase::kDense;
  poll_.phase_open = true;
  ++counts_.dense_phases;
  meter_.begin_phase(now_ns);
  dense_slice();
}

void Accounting::dense_slice() {
  const uint64_t begin = monotonic_ns();
  uint64_t now = begin;
  while (now < poll_.dense_end_ns && now - begin < kSliceNs) {
    meter_.sample(now, sources_.status0());
    ++counts_.reads;
    now = monotonic_ns();
  }
  if (now >= poll_.dense_end_ns && poll_.phase_open)
    meter_.end_phase(now), poll_.phase_open = false;
  // On to the end of a run that began in it.
  while (!poll_.phase_open && meter_.follows() && now < poll_.follow_end_ns &&
         now - begin < kSliceNs) {
    meter_.follow(now, sources_.status0());
    ++counts_.reads;
    now = monotonic_ns();
  }
  if (poll_.phase_open || (meter_.follows() && now < poll_.follow_end_ns)) {
    boost::asio::post(io_, [this, turn = poll_.turn] {
      if (turn == poll_.turn && poll_.phase == Phase::kDense) dense_slice();
    });
    return;
  }
  begin_sparse(now);
  housekeep(now);
}

void Accounting::begin_sparse(uint64_t now_ns) {
  poll_.phase = Phase::kSparse;
  poll_.from_ns = now_ns;
  poll_.cpu_mark_ns = thread_cpu_ns();
  poll_.wakes_mark = counts_.wakes;
  poll_.windows_ns = 0;
  arm();
}

// What a wake-up costs differs tenfold between machines; the budget has to hold on each. The
// thread's other work is in the figure too, so the least that was seen counts, and rises slowly.
void Accounting::measure_wakes() {
  const uint64_t wakes = counts_.wakes - poll_.wakes_mark;
  if (wakes < kWakesToMeasure) return;
  const uint64_t cpu = thread_cpu_ns(), used = cpu - poll_.cpu_mark_ns,
                 woke = used - std::min(used, poll_.windows_ns);
  const uint64_t seen = std::clamp(woke / wakes, kLeastWakeNs, kMostWakeNs),
                 was = poller_.wake_ns();
  poller_.set_wake_ns(seen < was ? seen : was + (seen - was) / 8);
  poll_.cpu_mark_ns = cpu;
  poll_.wakes_mark = counts_.wakes;
  poll_.windows_ns = 0;
}

void Accounting::arm() {
  const uint64_t stratum =
      std::min(poll_.stratum_ns,
               poll_.pause_end_ns > poll_.from_ns ? poll_.pause_end_ns - poll_.from_ns : 1);
  poll_.due_ns = poller_.read_at(poll_.from_ns, stratum);
  timer_.at_ns(poll_.due_ns, [this] { on_wake(); });
}

// A read that goes on for the round's window: at most AdaptivePoller::kMostWindowNs, in which the
// loop serves nobody.
accounting::StatusRead Accounting::read_status(uint64_t now_ns) {
  ++counts_.reads;
  if (poll_.window_ns == 0) return accounting::StatusRead(sources_.status0());
  accounting::StatusRead seen;
  uint64_t last = now_ns;
  uint32_t word = sources_.status0();
  while (last < now_ns + poll_.window_ns) {
    const uint64_t now = monotonic_ns();
    // A gap in the reading says nothing of what was in it.
    if (now - last <= kGapNs) seen.add(word, now - last);
    word = sources_.status0();
    last = now;
  }
  poll_.windows_ns += last - now_ns;
  return seen.all_ns() ? seen : accounting::StatusRead(word);
}

void Accounting::on_wake() {
  ++counts_.wakes;
  const uint64_t now = monotonic_ns();
  const bool cut = engaged() != poll_.engaged_round;
  // Its stratum; where it came late, or the round is over before its time, what has gone by.
  uint64_t to =
      std::min(poll_.from_ns + poll_.stratum_ns, std::max(poll_.pause_end_ns, poll_.from_ns + 1));
  if (now > to || cut) to = std::max(now, poll_.from_ns);
  if (sources_.has_registers()) {
    meter_.point(now, read_status(now), poll_.from_ns, to, cut ? now : poll_.due_ns,
                 poller_.half());
    if (poller_.batch_ends()) meter_.end_batch();
  }
  poll_.from_ns = to;
  measure_wakes();
  housekeep(now);
  if (poll_.phase != Phase::kSparse) return;
  if (poll_.idle_since_ns != 0 && now - poll_.idle_since_ns > kLingerNs) return stop(now);
  if (cut || poll_.from_ns >= poll_.pause_end_ns) {
    poller_.observe(meter_.take_change());
    if (poll_.from_ns <= now) return begin_round(now);
    // This read stands for the time up to there.
    return timer_.at_ns(poll_.from_ns, [this] { begin_round(monotonic_ns()); });
  }
  arm();
}

// ---- what is done now and then ---------------------------------------------------------------

// One of many samples at random times: their sum finds who runs where it may not. Not on
// NVIDIA: whose a group is is only learnt there, and fills, which need no grant, are its engine's
// work too. Not in mps mode: one group stands for all.
void Accounting::see() {
  if (!seen_ || settings_.nvidia || !sources_.has_registers() || sources_.is_mps()) return;
  const uint32_t status0 = sources_.status0();
  core::SessionId running = core::kNoSession;
  if (SLUICE_STATUS0_CTX_STATUS(status0) == SLUICE_CTX_VALID && SLUICE_STATUS0_BUSY(status0))
    if (const uint32_t tsgid = SLUICE_STATUS0_TSGID(status0); tsgid < groups_.session.size())
      running = groups_.session[tsgid];
  seen_(running);
}

void Accounting::housekeep(uint64_t now_ns) {
  see();
  if (now_ns >= next_.check_ns) {
    next_.check_ns = now_ns + kCheckNs;
    if (sources_.check(now_ns)) use_sources(now_ns);
  }
  if (meter_.take_unknown())
    next_.channels_ns = std::min(next_.channels_ns, next_.last_channels_ns + kMissingChannelsNs);
  if (now_ns >= next_.channels_ns) find_channels(now_ns);
  if (now_ns >= next_.words_ns) take_words(now_ns);
  if (now_ns < next_.log_ns) return;
  next_.log_ns = now_ns + (engaged() ? kLogNs : kSlowLogNs);
  read_log(now_ns);
  correct(now_ns);
}

void Accounting::read_log(uint64_t now_ns) {
  if (!sources_.has_log()) return;
  const uint64_t before = monotonic_ns();  // what is begun later is stamped later
  records_.clear();
  bool lost = false;
  const uint64_t known = sources_.read_log(before, records_, lost);
  if (!sources_.has_log()) return use_sources(now_ns);
  if (lost) meter_.on_dropped();
  for (const auto& r : records_)
    meter_.on_record(r.time_ns, r.seq, settings_.nvidia ? group_of(r.pid) : r.tsgid, r.start);
  meter_.settle_log(known);
}

void Accounting::correct(uint64_t now_ns) {
  corrections_.clear();
  meter_.take_corrections(now_ns, corrections_);
  if (settings_.nvidia)
    return;  // learnt groups have not been tried on hardware: shown, not charged
  for (const auto& c : corrections_) {
    if (c.extra_ns && meter_.read(now_ns, c.vgpu).ungranted_ns >= kWorthTellingNs &&
        (logged_ns_[c.vgpu] == 0 || now_ns - logged_ns_[c.vgpu] > kTellAgainNs)) {
      logged_ns_[c.vgpu] = now_ns;
      log::warning(
          "vgpu {}: it ran on the GPU without a grant, {:.1f} ms so far (by the GPU's own {}); "
          "charged",
          names_[c.vgpu], static_cast<double>(meter_.read(now_ns, c.vgpu).ungranted_ns) / 1e6,
          source());
    }
    correct_(c.vgpu, c.refund_ns, c.extra_ns);
  }
}

// The readers have come, gone, or failed.
void Accounting::use_sources(uint64_t now_ns) {
  const std::string before = source();
  if (sources_.is_mps()) meter_.share_group(SLUICE_SOFT_MPS_TSGID);
  meter_.set_usable(now_ns, Source::kRegisters, sources_.has_registers());
  meter_.set_usable(now_ns, Source::kSwitchLog, sources_.has_log());
  find_channels(now_ns);
  for (const auto* s : {&sources_.registers_state(), &sources_.log_state()}) {
    if (s->state != GpuSources::State::kUnavailable) continue;
    const bool log = s == &sources_.log_state();
    if (settings_.nvidia)
      log::info("accounting: no {}: {}", log ? "switch log" : "registers", s->why);
    else if (!log || !sources_.is_mps())
      log::warning("accounting: no {}: {}", log ? "switch log" : "registers", s->why);
  }
  if (source() != before) log::info("accounting goes by {} (before: {})", source(), before);
}

// Whose each of the software GPU's channel groups is: by the process that owns it.
void Accounting::find_channels(uint64_t now_ns) {
  // A new worker's context comes soon, or never.
  next_.channels_ns = now_ns + next_.channels_wait_ns;
  next_.channels_wait_ns = std::min(2 * next_.channels_wait_ns, kChannelsNs);
  next_.last_channels_ns = now_ns;
  const gpu::SoftGpu* soft = sources_.soft();
  if (settings_.nvidia) name_processes();
  if (!soft || sources_.is_mps()) {
    for (core::VgpuId v = 0; v < names_.size(); ++v) meter_.set_groups_missing(now_ns, v, false);
    return;
  }
  // Once through all sessions, of which there may be thousands.
  std::unordered_map<pid_t, core::SessionId> by_worker;
  for (core::SessionId id = 0; id < sessions_.size(); ++id)
    if (sessions_[id].report) by_worker.insert_or_assign(sessions_[id].worker, id);
  for (uint32_t tsgid = 1; tsgid <= SLUICE_SOFT_CHANNELS; ++tsgid) {
    const auto pid = static_cast<pid_t>(soft->channel(tsgid).pid);
    const auto at = pid == 0 ? by_worker.end() : by_worker.find(pid);
    uint32_t owner = UsageMeter::kNobody;
    groups_.session[tsgid] = core::kNoSession;
    if (at != by_worker.end()) {
      MeasuredSession& s = sessions_[at->second];
      owner = s.vgpu;
      groups_.session[tsgid] = at->second;
      s.has_group = true;
    }
    if (owner == groups_.owner[tsgid]) continue;
    groups_.owner[tsgid] = owner;
    meter_.assign(tsgid, owner);
  }
  std::vector<bool> missing(names_.size());
  for (const MeasuredSession& s : sessions_)
    if (s.report && !s.has_group && s.vgpu < missing.size()) missing[s.vgpu] = true;
  for (core::VgpuId v = 0; v < names_.size(); ++v) meter_.set_groups_missing(now_ns, v, missing[v]);
}

// NVIDIA's log names processes. Each session's stands for one group, of its own number.
void Accounting::name_processes() {
  const auto groups = static_cast<uint32_t>(std::min<size_t>(sessions_.size(), kProcessGroups));
  for (core::SessionId id = 0; id < groups; ++id) {
    const bool live = sources_.has_log() && sessions_[id].report;
    const uint32_t owner = live ? sessions_[id].vgpu : UsageMeter::kNobody;
    if (id >= groups_.of_process.size()) groups_.of_process.resize(id + 1, UsageMeter::kNobody);
    if (std::exchange(groups_.of_process[id], owner) != owner) meter_.assign(id + 1, owner);
  }
}

uint32_t Accounting::group_of(uint32_t pid) const {
  for (core::SessionId id = 0; id < groups_.of_process.size(); ++id)
    if (sessions_[id].report && sessions_[id].worker == static_cast<pid_t>(pid)) return id + 1;
  return 0;
}

// In turn, of this many sessions at once that have ended launches since their last time.
void Accounting::take_words(uint64_t now_ns) {
  next_.words_ns = now_ns + kWordsNs;
  if (!meter_.usable(Source::kWords)) return;
  size_t left = limits::kWordSessions;
  for (size_t n = 0; n < sessions_.size(); ++n) {
    const auto id = static_cast<core::SessionId>((words_from_ + n) % sessions_.size());
    MeasuredSession& s = sessions_[id];
    if (!s.report || __atomic_load_n(&s.report->launches_done, __ATOMIC_ACQUIRE) == s.done)
      continue;
    if (left-- == 0) {
      words_from_ = id;
      return;
    }
    take_words(now_ns, s);
  }
}

// The launches that have ended since the last time, by their own records. A launch record is
// not overwritten for some hundreds of launches; what is missed only makes the words' sum smaller.
void Accounting::take_words(uint64_t now_ns, MeasuredSession& s) {
  if (!meter_.usable(Source::kWords)) return;
  if (s.seen.empty()) s.seen.resize(SLUICE_REPORT_RECORDS);
  // Before the records: a worker counts a launch once its record says so.
  s.done = __atomic_load_n(&s.report->launches_done, __ATOMIC_ACQUIRE);
  for (size_t i = 0; i < SLUICE_REPORT_RECORDS; ++i) {
    const sluice_launch_record& r = s.records->records[i];
    if (__atomic_load_n(&r.state, __ATOMIC_ACQUIRE) != SLUICE_LAUNCH_DONE) continue;
    const uint64_t id = __atomic_load_n(&r.launch_id, __ATOMIC_RELAXED);
    if (id == s.seen[i]) continue;
    s.seen[i] = id;
    const uint64_t start = __atomic_load_n(&r.start_ns, __ATOMIC_RELAXED),
                   left = __atomic_load_n(&r.left_ns, __ATOMIC_RELAXED);
    // One that was evicted was not on the GPU all the time between.
    if (start == 0 || left == 0 || __atomic_load_n(&r.evictions, __ATOMIC_RELAXED) != 0) continue;
    ++s.taken;
    meter_.on_launch_words(now_ns, s.vgpu, start, left);
  }
}

// ---- for people ------------------------------------------------------------------------------

UsageMeter::Reading Accounting::read(core::VgpuId v) const {
  return meter_.read(monotonic_ns(), v);
}

bool Accounting::words_lie(core::VgpuId v) const {
  bool any = false;
  for (const MeasuredSession& s : sessions_) {
    if (!s.report || s.vgpu != v) continue;
    // Launches that ended since the last read are on neither side yet.
    if (s.taken == 0 || s.taken < __atomic_load_n(&s.report->launches_done, __ATOMIC_RELAXED))
      return false;
    any = true;
  }
  return any && read(v).words_lie;
}

std::optional<uint64_t> Accounting::fault_stall_ns(pid_t worker, uint64_t since_ns) const {
  return sources_.fault_stall_ns(static_cast<uint32_t>(worker), since_ns);
}

std::string Accounting::source() const {
  switch (meter_.source()) {
    case Source::kRegisters:
      return "registers";
    case Source::kSwitchLog:
      return "switch_log";
    default:
      return "clock";
  }
}

std::vector<Accounting::SourceState> Accounting::sources() const {
  const auto text = [](GpuSources::State s) {
    switch (s) {
      case GpuSources::State::kOff:
        return "off";
      case GpuSources::State::kWaiting:
        return "waiting";
      case GpuSources::State::kInUse:
        return "in use";
      case GpuSources::State::kUnavailable:
        return "unavailable";
    }
    return "?";
  };
  const auto& r = sources_.registers_state();
  const auto& l = sources_.log_state();
  const bool words = meter_.usable(Source::kWords);
  return {{"clock", "in use", "grant to left; bounds the others"},
          {"registers", text(r.state), r.why},
          {"switch_log", text(l.state), l.why},
          {"words", words ? "in use" : "off",
           words ? "hints: they may raise a figure within the others' bound, never lower it"
           : settings_.nvidia ? "the GPU's clock is not compared with the host's"
                              : "not asked for in the configuration"}};
}

}  // namespace sluice
