// SPDX-License-Identifier: Apache-2.0
// The grid runner's SMs: which block goes where, and which must go.
#include <algorithm>
#include <climits>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"
#include "mediator/softgpu/grid/grid_runner.h"

namespace sluice::softgpu {
namespace {

// How long an SM's room is left to a process that waits for it, and how long not again if it did
// not come (it may not be allowed there): at most a tenth of the time is lost.
constexpr uint64_t kLeaveToOthers_ns = 1'000'000;
constexpr uint64_t kKeepAfterwards_ns = 9'000'000;

}  // namespace

// Whether one more block of the grid fits there, beside `more` that it is about to have.
bool GridRunner::fits(uint32_t number, const Grid& grid, uint32_t more) const {
  const Sm& sm = sm_[number];
  const BlockNeeds& needs = grid.needs;
  const uint32_t n = more + 1;
  return grid.on_sm[number] + more < needs.per_sm && sm.blocks + n <= limits_.blocks &&
         sm.threads + n * needs.threads <= limits_.threads &&
         sm.registers + n * needs.registers <= limits_.registers &&
         sm.shared_bytes + n * needs.shared_bytes <= limits_.shared_bytes;
}

SmClaim GridRunner::claim_of(const Grid& grid) {
  return {grid.needs.registers, grid.needs.shared_bytes, grid.needs.threads, 1};
}

// mps: room for a block, of what all processes share; false: others have it.
bool GridRunner::claim_sm(uint32_t number, const Grid& grid) {
  const Rank rank = rank_of(grid);
  const Sm& sm = sm_[number];
  const bool left = sm.left_to.is_before(rank) && monotonic_ns() < sm.left_until_ns;
  return !left && gpu_.claim(number, limits_, claim_of(grid), rank);
}

// Gives every SM what fits, context by context. A grid that finds no room keeps later ones of its
// context, or green context, from overtaking it.
void GridRunner::place() {
  unplaced_ = false;
  starved_.reset();
  starved_at_.fill(0);
  starved_first_ = {};
  blocked_priority_ = INT_MAX;
  uint64_t placed = 0;
  first_client_ = (first_client_ + 1) % kMaxContexts;
  std::vector<uint64_t> full;  // of green contexts, 0: the context itself
  for (bool again = true; again;) {
    for (unsigned i = 0; i < kMaxContexts; ++i) {
      Client& client = clients_[(first_client_ + i) % kMaxContexts];
      if (client.presence != Presence::kOn) continue;
      full.clear();
      for (size_t g = 0; g < client.active.size(); ++g) {
        const GridRef& grid = client.active[g];
        if (!grid->has_more() || std::find(full.begin(), full.end(), grid->green) != full.end())
          continue;
        bool room = may_place(grid);
        while (room && grid->has_more()) {
          room = place_one(grid);
          placed += room;
        }
        if (room) continue;
        full.push_back(grid->green);
        blocked_priority_ = std::min(blocked_priority_, grid->priority);
      }
    }
    again = end_gathering();  // for those that were kept waiting
  }
  if (placed >= thread_count_) {
    work_.notify_all();
  } else {
    for (; placed != 0; --placed) work_.notify_one();
  }
  if (starved_.any()) {
    gpu_.mark_starved(starved_at_, starved_first_.order);
    if (!standing_) work_.notify_one();  // somebody has to wait for room
  } else if (gpu_.is_mps()) {
    gpu_.clear_starved();
  }
  // The thread that stands in the queue sleeps elsewhere.
  if (standing_ && run_queue_.any_cold()) gpu_.ring_self();
}

// Whether blocks of the grid may be placed now. A cooperative one's not while another one is only
// partly there on any of its SMs.
bool GridRunner::may_place(const GridRef& grid) {
  if (!grid->together || gathers(grid)) return true;
  if ((grid->sms & held_).any()) return false;
  if (gpu_.is_mps() && !gpu_.gather(grid->sms, rank_of(*grid))) {
    starve(grid->sms, *grid);
    return false;
  }
  gathering_.push_back(grid);
  held_ |= grid->sms;
  return true;
}

void GridRunner::starve(const SmSet& on, const Grid& grid) {
  if (on.none()) return;
  if (starved_.none() || rank_of(grid).is_before(starved_first_)) starved_first_ = rank_of(grid);
  starved_ |= on;
  for (uint32_t sm = 0; sm < sms_; ++sm)
    if (on[sm]) starved_at_[sm] = std::max(starved_at_[sm], urgency_of(grid.priority));
}

bool GridRunner::gathers(const GridRef& grid) const {
  return std::find(gathering_.begin(), gathering_.end(), grid) != gathering_.end();
}

// Lets go of the SMs of cooperative grids that are there as a whole, or gone; true: there were
// such.
bool GridRunner::end_gathering() {
  return std::erase_if(gathering_, [&](const GridRef& grid) {
           if (grid->has_more() && clients_[grid->slot].presence == Presence::kOn) return false;
           held_ &= ~grid->sms;
           if (gpu_.is_mps()) gpu_.gathered(grid->sms);
           return true;
         }) != 0;
}

// An SM for each block of a cluster, each time one with the fewest blocks; claimed. False: there is
// not room for all; `refused` says which SMs others have too much of.
bool GridRunner::find_room(const Grid& grid, SmSet allowed, std::vector<uint32_t>& sms,
                           SmSet& refused) {
  while (sms.size() < grid.cluster()) {
    uint32_t best = sms_, fewest = 0;
    for (uint32_t i = 0; i < sms_; ++i) {
      if (!allowed[i] || refused[i]) continue;
      const auto more = static_cast<uint32_t>(std::count(sms.begin(), sms.end(), i));
      if (!fits(i, grid, more) || (best != sms_ && sm_[i].blocks + more >= fewest)) continue;
      best = i;
      fewest = sm_[i].blocks + more;
    }
    if (best != sms_ && gpu_.is_mps() && !claim_sm(best, grid)) {
      refused.set(best);
      continue;
    }
    if (best == sms_) {
      if (gpu_.is_mps())
        for (const uint32_t sm : sms) gpu_.unclaim(sm, claim_of(grid));
      return false;
    }
    sms.push_back(best);
  }
  return true;
}

// The grid's next block or cluster, a parked one first; false: no room.
bool GridRunner::place_one(const GridRef& grid) {
  SmSet allowed = within(clients_[grid->slot].allowed, grid->sms);
  if (!gathers(grid)) allowed &= ~held_;
  SmSet refused;  // mps: others have too much of them
  auto r = std::make_unique<Resident>();
  if (!find_room(*grid, allowed, r->sms, refused)) {
    starve(refused, *grid);
    return false;
  }
  r->grid = grid;
  r->claimed = gpu_.is_mps();
  if (grid->parked.empty()) {
    r->index = grid->next++;
  } else {
    Grid::Parked& parked = grid->parked.front();
    r->index = parked.index;
    r->begun = parked.block != nullptr;
    r->block = std::move(parked.block);
    grid->parked.pop_front();
    for (uint32_t rank = 0; r->begun && rank < r->sms.size(); ++rank)
      r->block->move_rank(rank, {grid->name_of(r->sms[rank]), sms_});
  }
  for (const uint32_t sm : r->sms) enter_sm(*r, sm);
  ++grid->resident;
  ++clients_[grid->slot].resident;
  requeue(r.get());
  r->at = residents_.size();
  residents_.push_back(std::move(r));
  return true;
}

void GridRunner::enter_sm(const Resident& r, uint32_t number) {
  Sm& sm = sm_[number];
  const BlockNeeds& needs = r.grid->needs;
  ++sm.blocks;
  sm.threads += needs.threads;
  sm.registers += needs.registers;
  sm.shared_bytes += needs.shared_bytes;
  ++r.grid->on_sm[number];
  auto used = SharedGpu::word(gpu_.channel(r.grid->slot).sms_used[number / 64]);
  const uint64_t here = uint64_t{1} << number % 64;
  if ((used.load(std::memory_order_relaxed) & here) == 0) used.fetch_or(here);
  const auto stay = std::find_if(sm.stays.begin(), sm.stays.end(),
                                 [&](const Stay& s) { return s.slot == r.grid->slot; });
  if (stay != sm.stays.end()) {
    ++stay->blocks;
  } else {
    sm.stays.push_back({r.grid->slot, 1, monotonic_ns()});
  }
}

void GridRunner::leave_sms(Resident& r) {
  for (const uint32_t sm : r.sms) leave_sm(r, sm);
  r.claimed = false;
  --r.grid->resident;
  --clients_[r.grid->slot].resident;
}

void GridRunner::leave_sm(const Resident& r, uint32_t number) {
  Sm& sm = sm_[number];
  const BlockNeeds& needs = r.grid->needs;
  --sm.blocks;
  sm.threads -= needs.threads;
  sm.registers -= needs.registers;
  sm.shared_bytes -= needs.shared_bytes;
  --r.grid->on_sm[number];
  if (r.claimed) {
    gpu_.unclaim(number, claim_of(*r.grid));
    // Others were notified that there is room: they get the time to come, but not again and again.
    const auto theirs = gpu_.starves_before(number, rank_of(*r.grid));
    if (theirs && monotonic_ns() >= sm.keep_until_ns) {
      sm.left_to = *theirs;
      sm.left_until_ns = monotonic_ns() + kLeaveToOthers_ns;
      sm.keep_until_ns = sm.left_until_ns + kKeepAfterwards_ns;
    }
  }
  const auto stay = std::find_if(sm.stays.begin(), sm.stays.end(),
                                 [&](const Stay& s) { return s.slot == r.grid->slot; });
  if (stay != sm.stays.end() && --stay->blocks == 0) {
    SharedGpu::word(gpu_.channel(stay->slot).sm_ns).fetch_add(monotonic_ns() - stay->since_ns);
    sm.stays.erase(stay);
  }
}

void GridRunner::destroy(Resident* r) {
  const size_t at = r->at;
  SLUICE_CHECK(at < residents_.size() && residents_[at].get() == r);
  std::swap(residents_[at], residents_.back());
  residents_[at]->at = at;
  residents_.pop_back();
}

bool GridRunner::is_preempted(const Resident& r) const {
  const Client& client = clients_[r.grid->slot];
  if (r.evict || client.lost) return true;
  const auto lost = [&client](uint32_t sm) { return !client.allowed[sm]; };
  return gpu_.saves() &&
         (client.presence == Presence::kLeaving || std::any_of(r.sms.begin(), r.sms.end(), lost));
}

// Takes a block off its SM, to go on later. It stands in no run queue.
void GridRunner::park(Resident* r) {
  const GridRef grid = r->grid;
  Client& client = clients_[grid->slot];
  leave_sms(*r);
  if (r->begun) {
    const uint64_t bytes = grid->state_bytes();
    client.saving_bytes += bytes;
    client.parked_bytes += bytes;
    sluice_soft_channel& channel = gpu_.channel(grid->slot);
    SharedGpu::word(channel.saved_blocks).fetch_add(grid->cluster());
    SharedGpu::word(channel.saved_bytes).fetch_add(bytes);
  }
  if (!r->begun) r->block = nullptr;
  grid->parked.push_back({std::move(r->block), r->index});
  destroy(r);
  unplaced_ = true;
}

// Parks the blocks of a context that must go and are not in a slice just now; the others are
// notified to end theirs.
void GridRunner::park_preempted(unsigned slot) {
  std::vector<Resident*> going;
  bool running = false;
  for (const auto& r : residents_) {
    // One whose grid has failed ends by itself.
    if (r->grid->slot != slot || r->grid->abandoned || !is_preempted(*r)) continue;
    if (r->running) {
      running = true;
    } else {
      going.push_back(r.get());
    }
  }
  if (running) gpu_.attention().fetch_add(1);
  if (going.empty()) return;
  std::sort(going.begin(), going.end());
  const auto goes = [&](Resident* r) { return std::binary_search(going.begin(), going.end(), r); };
  run_queue_.remove_if(goes);
  // In the order of their indices, so that the first to start is the first to go on.
  std::sort(going.begin(), going.end(),
            [](const Resident* a, const Resident* b) { return a->index < b->index; });
  for (Resident* r : going) park(r);
}

// This process stood still, and others have taken what it had of the SMs: whoever finds room there
// stays, the others go.
void GridRunner::renew_claims() {
  claims_epoch_ = gpu_.claims_epoch();
  gpu_.drop_claims();
  for (const auto& r : residents_) {
    size_t had = 0;
    while (had < r->sms.size() &&
           gpu_.claim(r->sms[had], limits_, claim_of(*r->grid), rank_of(*r->grid)))
      ++had;
    r->claimed = had == r->sms.size();
    for (; !r->claimed && had != 0; --had) gpu_.unclaim(r->sms[had - 1], claim_of(*r->grid));
    r->evict = !r->claimed;
  }
  for (unsigned slot = 0; slot < kMaxContexts; ++slot)
    if (clients_[slot].resident != 0) park_preempted(slot);
}

}  // namespace sluice::softgpu
