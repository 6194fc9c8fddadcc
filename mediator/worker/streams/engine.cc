// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/streams/engine.h"

#include <algorithm>
#include <utility>

#include "mediator/base/check.h"

namespace sluice::worker {

namespace {
// A marker costs some microseconds; what waits for one behind a longer launch would wait for that.
constexpr uint64_t kMarkedNs = 100'000;
bool is_long(uint64_t expected_ns) { return expected_ns == 0 || expected_ns >= kMarkedNs; }
}  // namespace

StreamEngine::StreamEngine(EngineDriver& driver, Gate& gate, EngineLimits limits)
    : driver_(driver),
      gate_(gate),
      limits_(limits),
      demand_(gate),
      opaque_(limits.opaque_depth, limits.opaque_contended_ns),
      slice_queue_(limits.opaque_depth),
      bulk_(limits.opaque_depth, 0) {}

StreamId StreamEngine::add_stream(ContextId context, StreamKind kind) {
  auto stream = std::make_unique<Stream>();
  stream->id = next_stream_++;
  stream->context = context;
  stream->kind = kind;
  streams_.by_id[stream->id] = stream.get();
  streams_.all.push_back(std::move(stream));
  return streams_.all.back()->id;
}

StreamEngine::Stream& StreamEngine::at(StreamId id) {
  auto it = streams_.by_id.find(id);
  SLUICE_CHECK(it != streams_.by_id.end() && !it->second->removed);
  return *it->second;
}

void StreamEngine::remove_stream(StreamId id) {
  Stream& s = at(id);
  s.removed = true;
  if (!s.ops.empty() || s.lingers) return;  // settle() or linger() reaps it
  driver_.drained(id);
  streams_.by_id.erase(id);
  std::erase_if(streams_.all, [id](const auto& x) { return x->id == id; });
}

StreamEngine::Op& StreamEngine::append(Stream& s, OpKind kind, std::shared_ptr<Work> work,
                                       uint64_t token, uint64_t now_ns) {
  Op& op = s.ops.emplace_back();
  op.kind = kind;
  op.seq = next_seq_++;
  op.token = token;
  op.work = std::move(work);
  ++queued_;
  demand_.appended(s, op, now_ns);
  if (op.is_launch()) {
    ++counters_.launches;
    if (kind == OpKind::kOpaque) ++counters_.opaque;
  }
  return op;
}

void StreamEngine::submit(StreamId stream, OpKind kind, std::shared_ptr<Work> work, uint64_t token,
                          uint64_t now_ns) {
  if (error_ != CUDA_SUCCESS) {
    if (token) driver_.complete(token, error_);
    return;
  }
  Stream& s = at(stream);
  append(s, kind, std::move(work), token, now_ns);
  advance(s, false, now_ns);
  mark_if_due(s, now_ns);
  // An operation that failed to issue may already be complete and may have held others.
  if (!s.ops.empty() && s.ops.front().state == State::kFailed) settle(now_ns);
  if (pending_error_ != CUDA_SUCCESS) fail(pending_error_, now_ns);
  demand_.update(streams_, now_ns);
}

std::shared_ptr<EventRecord> StreamEngine::submit_record(StreamId stream,
                                                         std::shared_ptr<Work> work,
                                                         uint64_t now_ns) {
  auto record = std::make_shared<EventRecord>();
  if (error_ != CUDA_SUCCESS) {
    record->complete = true;
    record->status = error_;
    return record;
  }
  Stream& s = at(stream);
  Op& op = append(s, OpKind::kRecord, std::move(work), 0, now_ns);
  record->stream = stream;
  record->seq = op.seq;
  op.record = record;
  advance(s, false, now_ns);
  mark_if_due(s, now_ns);
  if (!s.ops.empty() && s.ops.front().state == State::kFailed) settle(now_ns);
  if (pending_error_ != CUDA_SUCCESS) fail(pending_error_, now_ns);
  return record;
}

void StreamEngine::submit_wait(StreamId stream, std::shared_ptr<EventRecord> record,
                               uint64_t now_ns) {
  if (error_ != CUDA_SUCCESS) return;
  Stream& s = at(stream);
  // Nothing to wait for. In the legacy stream it still stands between earlier and later work of the
  // blocking streams, as any operation there does.
  if ((!record || record->complete) && s.kind != StreamKind::kLegacy) return;
  Op& op = append(s, OpKind::kWait, nullptr, 0, now_ns);
  if (record && !record->complete) {
    s.waits.emplace_back(op.seq, record);
    demand_.wait_appended();
  }
  op.record = std::move(record);
  settle(now_ns);
}

bool StreamEngine::clear_across(const Stream& s, uint64_t seq) const {
  if (s.kind == StreamKind::kNonBlocking) return true;
  const StreamKind other =
      s.kind == StreamKind::kLegacy ? StreamKind::kBlocking : StreamKind::kLegacy;
  for (const auto& t : streams_.all) {
    if (t->context != s.context || t->kind != other || t->ops.empty()) continue;
    if (t->ops.front().seq < seq) return false;
  }
  return true;
}

// Reads from the driver what has ended in the stream.
bool StreamEngine::collect(Stream& s, uint64_t now_ns) {
  bool progress = false;
  while (s.queue.has_marker()) {
    CUresult result = driver_.query(s.queue.oldest_marker());
    if (result == CUDA_ERROR_NOT_READY) break;
    if (result != CUDA_SUCCESS) {
      pending_error_ = result;
      return progress;
    }
    physical_ -= s.queue.reach();
    progress = true;
  }
  if (!progress) return false;
  originals_.clear();
  for (; s.ended < s.next; ++s.ended) {
    Op& op = s.ops[s.ended];
    if (!op.in_flight()) continue;
    if (!s.queue.ended(op.flight.item)) break;
    op.set_state(State::kEnded);
    Flight& flight = op.flight;
    flight.pred.reset();
    if (op.kind == OpKind::kOpaque) {
      slice_queue_.remove(now_ns);
      if (!limits_.slices) opaque_.remove(driver_.expected_ns(*op.work));
      originals_.push_back(op.work.get());
    }
    if (op.kind == OpKind::kBulk) bulk_.remove(0);
    if (op.needs_grant())
      gate_.leave(now_ns, flight.confinement != Confinement::kNone, flight.grant);
    if (flight.second.generation != 0) {
      gate_.leave(now_ns, true, flight.second);
      flight.second = {};
    }
  }
  if (!originals_.empty()) driver_.opaque_ended(s.id, originals_, gate_.contended(), now_ns);
  return true;
}

// Completes from the front what is complete.
bool StreamEngine::retire(Stream& s, uint64_t now_ns) {
  bool progress = false;
  while (!s.ops.empty() && pending_error_ == CUDA_SUCCESS) {
    Op& op = s.ops.front();
    switch (op.state) {
      case State::kHeld:
        if (op.kind != OpKind::kNotify || !clear_across(s, op.seq)) return progress;
        break;
      case State::kPassed:
      case State::kFailed:
        break;
      case State::kEnded:
        if (s.draining()) return progress;
        if (op.kind == OpKind::kLaunch && !launch_over(s, op, now_ns))
          return progress || pending_error_ == CUDA_SUCCESS;
        break;
      case State::kReached:
      case State::kOpen:
      case State::kSubmitted:
      case State::kEvicted:
        return progress;
    }
    finish(s, CUDA_SUCCESS, now_ns);
    progress = true;
  }
  return progress;
}

// The front launch has ended. True: it is done. False: its stream drains, or pending_error_ is set.
bool StreamEngine::launch_over(Stream& s, Op& op, uint64_t now_ns) {
  switch (const LaunchEnd end = driver_.launch_end(*op.work); end) {
    case LaunchEnd::kDone:
      return true;
    case LaunchEnd::kFault:
      pending_error_ = CUDA_ERROR_LAUNCH_FAILED;
      return false;
    case LaunchEnd::kStuck:
      if (++op.futile >= limits_.futile_launches) {
        pending_error_ = CUDA_ERROR_LAUNCH_FAILED;
        return false;
      }
      break;
    case LaunchEnd::kNoRoom:
      s.retry_ns = now_ns + std::min(limits_.retry_most_ns,
                                     limits_.retry_first_ns << std::min(op.futile, 16u));
      ++op.futile;
      break;
    case LaunchEnd::kWave:
    case LaunchEnd::kLeft:
      op.futile = 0;
      if (end == LaunchEnd::kLeft) ++counters_.evictions;
      break;
  }
  s.drain();
  return false;
}

// Takes the front operation out as complete.
void StreamEngine::finish(Stream& s, CUresult status, uint64_t now_ns) {
  Op op = std::move(s.ops.front());
  s.ops.pop_front();
  if (s.next > 0) {
    --s.next;
    if (op.kind == OpKind::kLaunch) --s.launches_issued;
  }
  if (s.ended > 0) --s.ended;
  --queued_;
  if (status == CUDA_SUCCESS) status = op.status;
  if (op.is_launch() && error_ == CUDA_SUCCESS) ++counters_.launches_done;
  demand_.finished(s, op, now_ns);
  if (s.flow == Flow::kBlocked && op.kind == OpKind::kValueWait) s.flow = Flow::kFlowing;
  if (op.kind == OpKind::kRecord) {
    op.record->complete = true;
    op.record->status = status;
    for (uint64_t token : op.record->waiting) driver_.complete(token, status);
    op.record->waiting.clear();
  }
  if (op.group) {
    if (--op.group->remaining == 0) driver_.complete(op.token, status);
  } else if (op.token) {
    driver_.complete(op.token, status);
  } else if (status != CUDA_SUCCESS && error_ == CUDA_SUCCESS) {
    driver_.async_error(status);
  }
}

// All that a draining stream had in the driver's queue has ended: its launches are evicted.
void StreamEngine::put_back(Stream& s) {
  SLUICE_CHECK(s.queue.length() == 0);
  for (size_t i = 0; i < s.next; ++i) {
    Op& op = s.ops[i];
    if (op.state == State::kPassed || op.state == State::kFailed || op.kind == OpKind::kNotify)
      continue;
    // Nothing else is ever submitted behind a launch that is not done.
    SLUICE_CHECK(op.kind == OpKind::kLaunch);
    op.set_state(State::kEvicted);
  }
  s.next = 0;
  s.ended = 0;
  s.launches_issued = 0;
  s.flow = Flow::kFlowing;
  s.retry_ns = 0;
}

// Submits from `next` on what may go now. `relaunches_only`: stops at what was never submitted.
bool StreamEngine::advance(Stream& s, bool relaunches_only, uint64_t now_ns) {
  if (s.open()) return false;
  if (s.flow == Flow::kDraining) {
    if (s.queue.length() != 0 || now_ns < s.retry_ns) return false;
    put_back(s);
  }
  bool progress = false;
  while (s.next < s.ops.size() && pending_error_ == CUDA_SUCCESS && !s.open()) {
    Op& op = s.ops[s.next];
    if (op.state == State::kPassed || op.state == State::kFailed || op.kind == OpKind::kNotify) {
      // Met again after an eviction, or complete by its place alone.
      ++s.next;
      if (op.kind == OpKind::kLaunch) ++s.launches_issued;
      continue;
    }
    if (s.flow == Flow::kBlocked || (relaunches_only && op.state != State::kEvicted))
      return progress;
    if (!clear_across(s, op.seq)) return progress;
    if (op.kind == OpKind::kWait) {
      if (op.record && !op.record->complete) return progress;
      op.set_state(State::kPassed);
      op.record.reset();
      ++s.next;
      progress = true;
      continue;
    }
    if (op.kind == OpKind::kHostFunc) {
      if (s.next == 0) reach(op);  // everything before it is complete
      return progress;
    }
    if (!may_submit(s, op, now_ns) || (op.needs_grant() && !enter_gate(s, op, now_ns)))
      return progress;
    bool pieces = false;
    const CUresult status = to_driver(s, op, &pieces, now_ns);
    submitted(s, op, pieces, status, now_ns);
    progress = true;
  }
  return progress;
}

// The stream has come to a host function: the program is notified, once.
void StreamEngine::reach(Op& op) {
  if (op.state == State::kReached) return;
  op.set_state(State::kReached);
  ++host_funcs_waiting_;
  driver_.reached_host_func(op.token);
}

bool StreamEngine::may_submit(const Stream& s, const Op& op, uint64_t now_ns) {
  if (s.queue.length() >= limits_.stream_depth) return false;
  if (op.kind != OpKind::kLaunch && s.launches_issued != 0) return false;
  if (op.kind == OpKind::kBulk) return bulk_.allows(0, gate_.contended());
  if (op.kind != OpKind::kOpaque) return true;
  Grant grant;
  const bool open = gate_.peek(&grant);
  if (limits_.slices) return slice_queue_.allows(open, now_ns);
  if (limits_.opaque_contended_ns == 0) {
    // A new grant says that it was closed, also where nobody has looked meanwhile.
    const bool stayed = open && std::exchange(seen_grant_, grant.generation) == grant.generation;
    if (!slice_queue_.allows(stayed, now_ns)) return false;
  }
  if (opaque_.allows(driver_.expected_ns(*op.work), gate_.contended())) return true;
  // The next one is there when the only one ends, so that the GPU does not pause between them.
  if (limits_.opaque_lead_ns == 0 || opaque_.in_flight() > 1) return false;
  const uint64_t end_ns = expected_end_ns();
  return end_ns >= now_ns && end_ns - now_ns <= limits_.opaque_lead_ns;
}

uint64_t StreamEngine::expected_end_ns() const {
  if (limits_.slices) return 0;  // others' slices come between
  uint64_t first_ns = 0;
  for (const auto& s : streams_.all) {
    uint64_t end_ns = 0;
    for (size_t i = s->ended; i < s->next; ++i) {
      const Op& op = s->ops[i];
      if (!op.is_launch() || !op.in_flight()) continue;
      const uint64_t takes_ns = driver_.expected_ns(*op.work);
      if (takes_ns == 0) return 0;
      end_ns = std::max(end_ns, driver_.issued_ns(*op.work)) + takes_ns;
    }
    if (end_ns != 0) first_ns = first_ns == 0 ? end_ns : std::min(first_ns, end_ns);
  }
  return first_ns;
}

// While its vGPU stands by.
bool StreamEngine::may_go_unasked(const Op& op) const {
  const uint64_t takes_ns = op.kind == OpKind::kOpaque ? driver_.expected_ns(*op.work) : 0;
  return takes_ns != 0 && takes_ns <= SLUICE_STANDBY_NS;
}

// Counts a launch in flight under the grant. False: it is held.
bool StreamEngine::enter_gate(Stream& s, Op& op, uint64_t now_ns) {
  if (Grant now; gate_.peek(&now)) {
    if (driver_.wait_for_hardware(s.id, now, now_ns)) {
      waits_for_hardware_ = true;
      return false;
    }
    if (now.standby && !may_go_unasked(op)) {
      held_by_gate_ = true;
      return false;
    }
  }
  Flight& flight = op.flight;
  if (!gate_.enter(now_ns, &flight.grant)) {
    held_by_gate_ = true;
    return false;
  }
  flight.confinement = driver_.confine(s.id, op.kind, *op.work, flight.grant, now_ns);
  if (flight.confinement == Confinement::kNone) gate_.runs_anywhere(flight.grant);
  return true;
}

CUresult StreamEngine::to_driver(Stream& s, Op& op, bool* pieces, uint64_t now_ns) {
  // What older grants let in would be known as ended only with what is now.
  if (op.needs_grant() && s.generation != op.flight.grant.generation) {
    s.generation = op.flight.grant.generation;
    mark_if_due(s, now_ns, true);
  }
  if (op.kind == OpKind::kLaunch) return launch(s, op, pieces, now_ns);
  // What is before a long one would be known as ended only when this has.
  if (op.kind == OpKind::kOpaque && is_long(driver_.expected_ns(*op.work)))
    mark_if_due(s, now_ns, true);
  const CUresult status = driver_.issue(s.id, op.kind, *op.work, now_ns);
  if (status != CUDA_SUCCESS) return status;
  if (op.kind == OpKind::kOpaque) slice_queue_.add(now_ns);
  if (op.kind == OpKind::kOpaque && !limits_.slices) opaque_.add(driver_.expected_ns(*op.work));
  if (op.kind == OpKind::kBulk) bulk_.add(0);
  if (op.kind == OpKind::kValueWait) s.flow = Flow::kBlocked;
  return CUDA_SUCCESS;
}

CUresult StreamEngine::launch(Stream& s, Op& op, bool* pieces, uint64_t now_ns) {
  // The nearest launch before it that is not known to be done.
  std::shared_ptr<Work> pred;
  for (size_t i = s.next; i-- > 0 && !pred;) {
    const Op& before = s.ops[i];
    if (before.kind == OpKind::kLaunch && before.state != State::kFailed) pred = before.work;
  }
  *pieces = driver_.comes_in_pieces(*op.work);
  // Otherwise what is before it would be known as ended only when this has.
  if (*pieces) mark_if_due(s, now_ns, true);
  const bool again = op.state == State::kEvicted;
  const CUresult status =
      driver_.launch(s.id, *op.work, op.flight.grant, pred.get(), again, now_ns);
  op.flight.pred = std::move(pred);
  if (again) ++counters_.relaunches;
  return status;
}

// The driver has answered `status` to the operation at `next`.
void StreamEngine::submitted(Stream& s, Op& op, bool pieces, CUresult status, uint64_t now_ns) {
  ++s.next;
  if (op.kind == OpKind::kLaunch) ++s.launches_issued;
  if (status != CUDA_SUCCESS && !(op.is_launch() && is_sticky(status)))
    return issue_failed(op, status, now_ns);
  // A part of it may run.
  if (status != CUDA_SUCCESS) pending_error_ = status;
  op.flight.item = s.queue.add();
  ++physical_;
  const bool open = pieces && pending_error_ == CUDA_SUCCESS;
  op.set_state(open ? State::kOpen : State::kSubmitted);
  if (open) {
    s.flow = Flow::kOpen;
    ++pacing_;
  } else {
    mark_if_due(s, now_ns);
  }
}

void StreamEngine::issue_failed(Op& op, CUresult status, uint64_t now_ns) {
  op.set_state(State::kFailed);
  op.status = status;
  if (op.needs_grant())
    gate_.leave(now_ns, op.flight.confinement != Confinement::kNone, op.flight.grant);
  if (is_sticky(status)) pending_error_ = status;
}

// Submits the next piece of a launch that is submitted in pieces, if it is time.
bool StreamEngine::feed(Stream& s, uint64_t now_ns) {
  if (!s.open() || pending_error_ != CUDA_SUCCESS) return false;
  SLUICE_CHECK(s.next > 0 && s.ops[s.next - 1].state == State::kOpen);
  Op& op = s.ops[s.next - 1];
  bool whole = false;
  const CUresult r = driver_.more(s.id, *op.work, s.draining(), now_ns, &whole);
  if (r != CUDA_SUCCESS) {
    // Half of it runs.
    pending_error_ = is_sticky(r) ? r : CUDA_ERROR_LAUNCH_FAILED;
    return false;
  }
  if (!whole) return false;
  op.set_state(State::kSubmitted);
  s.flow = s.draining() ? Flow::kDraining : Flow::kFlowing;
  --pacing_;
  mark_if_due(s, now_ns);
  return true;
}

void StreamEngine::mark_if_due(Stream& s, uint64_t now_ns, bool at_once) {
  const uint64_t unmarked = s.queue.unmarked();
  if (unmarked == 0 || s.open() || pending_error_ != CUDA_SUCCESS) return;
  // One marker per burst while all goes well; with the gate closed everybody waits for the last
  // end.
  if (!at_once && s.queue.has_marker() && unmarked < limits_.marker_interval && !s.draining() &&
      gate_.open(now_ns) && !gate_.calling_back()) {
    return;
  }
  uint64_t id = 0;
  CUresult result = driver_.mark(s.id, &id);
  if (result != CUDA_SUCCESS) {
    pending_error_ = result;
    return;
  }
  s.queue.mark(id);
}

void StreamEngine::settle(uint64_t now_ns) {
  // finish() may not come back here: EngineDriver's callbacks do not call the engine.
  SLUICE_CHECK(!settling_);
  if (error_ != CUDA_SUCCESS) return linger(now_ns);
  settling_ = true;
  change_sms(now_ns);
  bool progress = true;
  while (progress && pending_error_ == CUDA_SUCCESS) {
    progress = false;
    held_by_gate_ = waits_for_hardware_ = false;
    for (auto& s : streams_.all) {
      collect(*s, now_ns);
      progress |= retire(*s, now_ns);
      progress |= feed(*s, now_ns);
    }
    // What was evicted goes first, in every stream, then what is new.
    for (auto& s : streams_.all) progress |= advance(*s, true, now_ns);
    for (auto& s : streams_.all) {
      progress |= advance(*s, false, now_ns);
      mark_if_due(*s, now_ns);
    }
  }
  settling_ = false;
  retrying_ = false;
  for (const auto& s : streams_.all) retrying_ |= s->draining() && s->retry_ns != 0;
  gate_.set_keeps(how_kept());
  if (pending_error_ != CUDA_SUCCESS) return fail(pending_error_, now_ns);
  demand_.update(streams_, now_ns);
  std::erase_if(streams_.all, [this](const auto& s) {
    if (!s->removed || !s->ops.empty()) return false;
    driver_.drained(s->id);
    streams_.by_id.erase(s->id);
    return true;
  });
}

void StreamEngine::poll(uint64_t now_ns) { settle(now_ns); }

}  // namespace sluice::worker
