// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/session/worker_link.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "abi/end_word.h"
#include "guest-agent/shim/session/log.h"
#include "mediator/base/clock.h"

namespace sluice::guest {
namespace {

std::atomic<WorkerLink*> process_session{nullptr};
std::atomic<bool> lost_in_fork{false};

// How long a sleeper trusts that it would be woken before it reads the slot's state itself: when
// its worker and sluiced have both died, nobody rings.
constexpr uint64_t kLookNs = 1'000'000'000;
// Spinning before sleeping, unless SLUICE_SPIN_US says otherwise.
uint32_t spin_us() {
  const char* env = ::getenv("SLUICE_SPIN_US");
  return env != nullptr ? static_cast<uint32_t>(std::strtoul(env, nullptr, 10))
                        : Spinner::wait_us();
}

std::string program_name() {
  char path[256];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return "?";
  const std::string whole(path, static_cast<size_t>(n));
  return whole.substr(whole.rfind('/') + 1);
}

// The session of the thread that forks, from before until behind it; null: there was none, but
// another thread may have opened it meanwhile.
thread_local WorkerLink* forking = nullptr;
void before_fork() {
  forking = process_session.load();
  if (forking != nullptr) forking->channel().before_fork();
}
void in_parent() {
  if (forking != nullptr) forking->channel().after_fork_in_parent();
  forking = nullptr;
}
// Only async-signal-safe work: the child of a threaded program may do no more before exec.
void in_forked_child() {
  WorkerLink* link = process_session.exchange(nullptr);
  if (forking == nullptr && link == nullptr) return;
  lost_in_fork.store(true);
  (forking != nullptr ? forking : link)->channel().abandon_in_child(forking != nullptr);
  forking = nullptr;
}

}  // namespace

WorkerLink::WorkerLink(std::unique_ptr<Channel> channel)
    : channel_(std::move(channel)),
      submit_(submit_ring(channel_->region(), channel_->slot()), channel_->bell()),
      entries_(kEntries),
      completions_(complete_ring(channel_->region(), channel_->slot()), channel_->bell(), true,
                   GiveBack::kLate),
      spinner_(spin_us()) {
  for (uint32_t i = kEntries; i > 0; --i) free_entries_.push_back(i - 1);
  const sluice_slot_header& header = channel_->header();
  const uint64_t bytes = header.staging_bytes, end = header.staging_offset + bytes;
  const uint64_t at = sluice_end_word_offset(header.staging_offset, bytes);
  if (at == 0 || end < bytes || end > channel_->region_bytes()) return;
  end_word_ = reinterpret_cast<uint32_t*>(channel_->region() + at);
  store_shared(*end_word_, 0u);  // perhaps an earlier session's
}

WorkerLink* WorkerLink::current(CUresult* why) {
  WorkerLink* link = process_session.load(std::memory_order_acquire);
  *why = link != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  return link;
}

CUresult WorkerLink::open(FindPinnedRanges pinned_ranges) {
  static std::mutex* opening = new std::mutex;
  std::lock_guard lock(*opening);
  if (process_session.load() != nullptr) return CUDA_SUCCESS;
  if (lost_in_fork.load()) return CUDA_ERROR_NOT_INITIALIZED;
  auto channel = Channel::join(socket_path(), program_name(), [] {
    complain_once(
        "the vGPU has not answered for 10 s, and is waited for (on the host: 'systemctl status "
        "sluiced')");
  });
  if (!channel) {
    complain_once(channel.error().message.c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  static const bool registered = [] {
    ::pthread_atfork(before_fork, in_parent, in_forked_child);
    return true;
  }();
  (void)registered;
  auto* link = new WorkerLink(std::move(*channel));
  link->at_end_ = pinned_ranges;
  process_session.store(link, std::memory_order_release);
  return CUDA_SUCCESS;
}

// ---- submitting ----

std::byte* WorkerLink::reserve(uint32_t bytes) {
  if (dead() != CUDA_SUCCESS) return nullptr;
  if (channel_->ended()) {
    check_end();
    return nullptr;
  }
  for (;;) {
    if (std::byte* to = submit_.reserve(bytes)) return to;
    if (submit_.broken()) {
      fail({CUDA_ERROR_DEVICE_UNAVAILABLE, std::string("submit ring: ") + submit_.broken_reason()});
      return nullptr;
    }
    // The bell for room is the one for completions: whoever leads hears it, and checks again for
    // us.
    if (submit_.arm_space(bytes)) {
      bool first = true;
      wait_until([&] { return !std::exchange(first, false); });
      submit_.disarm_space();
    }
    if (dead() != CUDA_SUCCESS) return nullptr;
  }
}

// ---- what is known of the streams ----

bool WorkerLink::idle(uint64_t context) {
  std::lock_guard lock(submit_mutex_);
  return known_idle_.idle(context);
}

void WorkerLink::wait_for_early(uint64_t context, const Effect& effect) {
  const bool same = context == early_context_.load(std::memory_order_relaxed);
  const bool in_order = effect.kind == Effect::kWait || effect.kind == Effect::kEarly ||
                        (effect.kind != Effect::kNothing && is_legacy(effect.stream));
  if (same && in_order) return;
  wait_until([this] { return early_.load(std::memory_order_relaxed) == 0; });
}

void WorkerLink::begin_early(uint64_t context) {
  if (early_.load(std::memory_order_relaxed) != 0) wait_for_early(context, {Effect::kEarly, 0});
  early_context_.store(context, std::memory_order_relaxed);
  early_.fetch_add(1, std::memory_order_relaxed);
}

// ---- the table of outstanding calls ----

uint64_t WorkerLink::take_entry(std::unique_lock<std::mutex>& lock, Pending* pending, Done done) {
  if (free_entries_.empty()) {
    std::condition_variable wake;
    wait_until_locked(lock, wake, [this] { return !free_entries_.empty(); });
  }
  if (free_entries_.empty()) return 0;  // the session has ended
  const uint32_t index = free_entries_.back();
  free_entries_.pop_back();
  Entry& entry = entries_[index];
  entry.id = ++sequence_ * kEntries + index;
  entry.pending = pending;
  entry.done = std::move(done);
  return entry.id;
}

CUresult WorkerLink::enlist(Pending& pending) {
  std::unique_lock lock(complete_mutex_);
  pending.done = pending.word_seen = false;
  pending.body.clear();
  pending.id = dead() == CUDA_SUCCESS ? take_entry(lock, &pending, {}) : 0;
  // Checked again under the lock that fail() takes: either it saw our entry or we see its mark.
  return pending.id != 0 ? CUDA_SUCCESS : dead();
}

void WorkerLink::forget(Pending& pending) {
  std::lock_guard lock(complete_mutex_);
  Entry& entry = entries_[pending.id % kEntries];
  if (entry.id != pending.id) return;
  entry = Entry{};
  free_entries_.push_back(static_cast<uint32_t>(pending.id % kEntries));
}

CUresult WorkerLink::enlist_detached(Done done, uint64_t& id) {
  std::unique_lock lock(complete_mutex_);
  id = dead() == CUDA_SUCCESS ? take_entry(lock, nullptr, std::move(done)) : 0;
  return id != 0 ? CUDA_SUCCESS : dead();
}

void WorkerLink::cancel_detached(uint64_t id, CUresult status) {
  Done done;
  {
    std::lock_guard lock(complete_mutex_);
    Entry& entry = entries_[id % kEntries];
    if (entry.id != id) return;  // fail() has run it
    done = std::move(entry.done);
    entry = Entry{};
    free_entries_.push_back(static_cast<uint32_t>(id % kEntries));
  }
  done(id, status);
}

// ---- waiting ----

CUresult WorkerLink::wait(Pending& pending) {
  {
    std::unique_lock lock(complete_mutex_);
    const auto ended = [&] { return pending.done || end_by_word(pending); };
    wait_until_locked(lock, pending.wake, ended, pending.end_word != 0 ? &pending : nullptr);
    if (!pending.done) return dead();
  }
  if (pending.status == CUDA_SUCCESS && pending.mark.work != 0) {
    std::lock_guard lock(submit_mutex_);
    known_idle_.ended(pending.mark);
  }
  return pending.status;
}

CUresult WorkerLink::synchronize(uint64_t context, sluice_synchronize body) {
  Traced traced(SLUICE_CALL_SYNCHRONIZE, body);
  Pending pending;
  if (end_word_ != nullptr && body.what != SLUICE_SYNC_EVENT) {
    while (pending.end_word == 0)
      pending.end_word = last_end_word_.fetch_add(1, std::memory_order_relaxed) + 1;
    body.end_word = pending.end_word;
  }
  CUresult r = start(SLUICE_CALL_SYNCHRONIZE, context, body, pending);
  if (r == CUDA_SUCCESS) r = wait(pending);
  return traced.end(r);
}

// The GPU has written all before it as well.
bool WorkerLink::see_word(Pending* own) const {
  if (own == nullptr || load_shared(*end_word_) != own->end_word) return false;
  load_fence();
  return true;
}

// With the complete lock held. The answer is still to come: only an error in it is of interest.
bool WorkerLink::end_by_word(Pending& pending) {
  if (!pending.word_seen) return false;
  Entry& entry = entries_[pending.id % kEntries];
  if (entry.id != pending.id) return false;  // the session has ended meanwhile
  entry.pending = nullptr;
  entry.done = [this](uint64_t, CUresult status) { defer(status); };
  pending.status = CUDA_SUCCESS;
  return pending.done = true;
}

void WorkerLink::wait_until(const std::function<bool()>& ready) {
  std::condition_variable wake;
  std::unique_lock lock(complete_mutex_);
  wait_until_locked(lock, wake, ready);
}

void WorkerLink::wait_until_locked(std::unique_lock<std::mutex>& lock,
                                   std::condition_variable& wake,
                                   const std::function<bool()>& ready, Pending* own) {
  while (!ready() && dead() == CUDA_SUCCESS) {
    if (!leader_) {
      leader_ = true;
      lock.unlock();
      lead(true, own);
      lock.lock();
      leader_ = false;
    } else {
      Sleeper self{&wake, sleepers_};
      sleepers_ = &self;
      wake.wait(lock);
      for (Sleeper** at = &sleepers_; *at != nullptr; at = &(*at)->next) {
        if (*at != &self) continue;
        *at = self.next;
        break;
      }
    }
  }
  // Somebody must lead while anybody waits.
  if (!leader_ && sleepers_ != nullptr) sleepers_->wake->notify_one();
}

void WorkerLink::poll() {
  {
    std::lock_guard lock(complete_mutex_);
    if (leader_) return;
    leader_ = true;
  }
  lead(false);
  std::lock_guard lock(complete_mutex_);
  leader_ = false;
  if (sleepers_ != nullptr) sleepers_->wake->notify_one();
}

void WorkerLink::lead(bool may_sleep, Pending* own) {
  // What came before the word is taken after it was seen: an earlier call may have failed.
  bool seen = see_word(own);
  const auto take = [&] {
    if (seen) own->word_seen = true;
    return take_completions() || seen;
  };
  if (take() || !may_sleep) return;
  const uint64_t began_ns = monotonic_ns();
  if (spinner_.spin([&] { return completions_.readable() || (seen = see_word(own)); })) {
    take();
    return;
  }
  sleep_for_completion(began_ns, own);
  seen = see_word(own);
  take();
  check_end();
  // The bell may have meant room in the submit ring; its waiter is one of the sleepers.
  std::lock_guard lock(complete_mutex_);
  for (Sleeper* s = sleepers_; s != nullptr; s = s->next) s->wake->notify_one();
}

// After a spin in vain. Where the end is due at a known time, it is polled for.
void WorkerLink::sleep_for_completion(uint64_t began_ns, Pending* own) {
  const uint64_t spun_ns = monotonic_ns() - began_ns;
  const auto plan = Spinner::may_spin_for_long() ? forecast_.plan(spun_ns) : WaitForecast::Plan{};
  bool found = false;
  if (plan.poll_ns != 0) {
    if (plan.sleep_ns != 0) sleep(plan.sleep_ns);
    const uint64_t until_ns = monotonic_ns() + plan.poll_ns;
    while (!(found = completions_.readable() || see_word(own)) && !channel_->ended() &&
           monotonic_ns() < until_ns)
      cpu_relax();
  }
  if (!found) found = !sleep(kLookNs);
  const uint64_t waited_ns = monotonic_ns() - began_ns;
  if (found)
    spinner_.found_after(waited_ns - spun_ns);
  else
    spinner_.slept(waited_ns - spun_ns);
  forecast_.took(waited_ns);
}

// Until the bell rings, which may mean something else. False: something has come already.
bool WorkerLink::sleep(uint64_t longest_ns) {
  if (!completions_.arm()) return false;
  if (!channel_->ended()) channel_->wait(longest_ns);
  completions_.disarm();
  return true;
}

bool WorkerLink::take_completions() {
  bool any = false;
  for (;;) {
    switch (completions_.pop(buffer_)) {
      case Pop::kEmpty:
        return any;
      case Pop::kBroken:
        fail({CUDA_ERROR_DEVICE_UNAVAILABLE,
              std::string("complete ring: ") + completions_.broken_reason()});
        return true;
      case Pop::kRecord:
        any = true;
        complete(buffer_);
    }
  }
}

void WorkerLink::complete(const RecordBuffer& record) {
  const sluice_completion& completion = record.completion();
  const auto status = static_cast<CUresult>(completion.status);
  if (completion.call_id == 0 && completion.opcode == SLUICE_CALL_PRINTED) {
    // Where the program's own output goes, in the order in which it came. The answer that the
    // program waits for follows.
    sluice_printed printed;
    const auto body = record.body();
    if (body.size() < sizeof printed) return;
    std::memcpy(&printed, body.data(), sizeof printed);
    (void)std::fwrite(body.data() + sizeof printed, 1,
                      std::min<size_t>(printed.bytes, body.size() - sizeof printed),
                      printed.to == SLUICE_PRINTED_ERROR ? stderr : stdout);
    return;
  }
  if (completion.call_id == 0) {
    log_line("an earlier call failed: status %d", completion.status);
    defer(status);
    return;
  }
  Done done;
  {
    std::lock_guard lock(complete_mutex_);
    Entry& entry = entries_[completion.call_id % kEntries];
    if (entry.id != completion.call_id) {
      log_line("answer to a call that nobody made: %llu",
               static_cast<unsigned long long>(completion.call_id));
      return;
    }
    if (Pending* pending = entry.pending) {
      pending->status = status;
      pending->body.assign(record.body().begin(), record.body().end());
      pending->done = true;
      pending->wake.notify_one();
    }
    done = std::move(entry.done);
    const bool was_full = free_entries_.empty();
    free_entries_.push_back(static_cast<uint32_t>(entry.id % kEntries));
    entry = Entry{};
    if (was_full)
      for (Sleeper* s = sleepers_; s != nullptr; s = s->next) s->wake->notify_one();
  }
  if (!done) return;
  done(completion.call_id, status);
  // Somebody may wait for what it freed.
  std::lock_guard lock(complete_mutex_);
  for (Sleeper* s = sleepers_; s != nullptr; s = s->next) s->wake->notify_one();
}

// ---- the end ----

void WorkerLink::defer(CUresult status) {
  if (status == CUDA_SUCCESS) return;
  int none = CUDA_SUCCESS;
  deferred_.compare_exchange_strong(none, status);
}

namespace {
thread_local bool leaves_deferred = false;
}
void WorkerLink::leave_deferred() { leaves_deferred = true; }

CUresult WorkerLink::take_deferred() {
  if (deferred_.load(std::memory_order_relaxed) == CUDA_SUCCESS || leaves_deferred)
    return CUDA_SUCCESS;
  return static_cast<CUresult>(deferred_.exchange(CUDA_SUCCESS));
}

void WorkerLink::check_end() {
  if (dead() == CUDA_SUCCESS && channel_->ended()) fail(channel_->end_reason());
}

void WorkerLink::fail(SessionEnd end) {
  int alive = CUDA_SUCCESS;
  if (!dead_.compare_exchange_strong(alive, end.error)) return;
  complain_once(("the GPU session has ended: " + end.reason).c_str());
  std::vector<std::pair<uint64_t, Done>> done;
  {
    std::lock_guard lock(complete_mutex_);
    for (Entry& entry : entries_) {
      if (entry.id == 0) continue;
      if (entry.pending != nullptr) {
        entry.pending->status = static_cast<CUresult>(end.error);
        entry.pending->done = true;
      } else {
        done.emplace_back(entry.id, std::move(entry.done));
      }
      free_entries_.push_back(static_cast<uint32_t>(entry.id % kEntries));
      entry = Entry{};
    }
    for (Sleeper* s = sleepers_; s != nullptr; s = s->next) s->wake->notify_one();
  }
  for (auto& [id, one] : done) one(id, static_cast<CUresult>(end.error));
  after_end();
}

void WorkerLink::after_end() {
  if (!channel_->can_detach() || !channel_->poll_hang_up() || detached_.exchange(true)) return;
  auto keep = at_end_ ? at_end_() : PinnedRanges{};
  // A download that has its answer may be on its way from here to the program's memory.
  const sluice_slot_header& header = channel_->header();
  const uint64_t offset = header.staging_offset, bytes = header.staging_bytes;
  const uint64_t region = channel_->region_bytes();
  if (offset <= region && bytes <= region - offset) keep.emplace_back(offset, bytes);
  channel_->detach(keep);
}

}  // namespace sluice::guest
