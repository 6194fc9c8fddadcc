// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/plan/geometry.h"

#include <algorithm>
#include <bit>

#include "mediator/base/magic_divisor.h"

namespace sluice::worker {

uint32_t task_count(uint32_t x, uint32_t y, uint32_t z) {
  // y and z have at most 16 bits in CUDA, but these are a guest's.
  uint64_t n;
  if (__builtin_mul_overflow(uint64_t{x} * y, uint64_t{z}, &n)) return 0;
  return n < (1u << 31) ? static_cast<uint32_t>(n) : 0;
}

Geometry plan_launch(uint32_t tasks, uint32_t resident, uint32_t first_chunk, bool proxy,
                     const LoopSettings& settings, CloneForm form) {
  Geometry g;
  // A block of it leaves in mid-work, so that a grid that fits at once is worth a clone; it has no
  // proxy, for which there might be no room.
  if (form.resumable) {
    g.evictable = tasks != 0 && resident != 0;
    g.blocks = once_blocks(tasks, false);
    return g;
  }
  const uint32_t extra = proxy ? 1 : 0;
  if (tasks == 0 || resident <= extra || tasks <= resident) return g;
  g.evictable = true;
  const uint32_t workers = resident - extra;
  g.tail_shift = static_cast<uint8_t>(std::bit_width(workers - 1));  // ceil(log2)
  if (form.once) {
    g.blocks = once_blocks(tasks, proxy);
    return g;
  }
  if (settings.fixed_chunk != 0) {
    g.chunk = settings.fixed_chunk;
  } else if (!form.in_order) {
    const uint32_t fair = std::max(1u, tasks >> g.tail_shift);
    g.chunk = static_cast<uint16_t>(std::clamp(std::min(first_chunk, fair), 1u,
                                               std::min<uint32_t>(settings.chunk_max, kMaxChunk)));
  }
  const uint32_t chunks = (tasks + g.chunk - 1) / g.chunk;
  g.blocks = std::min(workers, chunks) + extra;
  if (!form.in_order && settings.fixed_chunk == 0) g.first_tickets = g.blocks - extra;
  return g;
}

bool FormChoice::allowed(uint32_t tasks, uint32_t block_threads, uint64_t task_ns, bool in_order,
                         const LoopSettings& settings) {
  // tasks < 2^31, at most 4 times leave_ps: below 2^63.
  const uint64_t each = uint64_t{settings.leave_ps} * std::max(1u, block_threads / 256);
  if (tasks * each > uint64_t{settings.admission_us} * 1'000'000) return false;
  return in_order || task_ns >= kShortTaskNs;
}

WindowPlan FormChoice::windows(const uint32_t grid[3], uint32_t resident, uint64_t task_ns,
                               const LoopSettings& settings) {
  const uint64_t window_ns = uint64_t{settings.window_us} * 1000;
  if (task_ns == 0 || resident == 0 || task_ns > kLongWindow * window_ns) return {};
  const GridWindows whole(grid, 1);
  const uint64_t most = std::max<uint64_t>(window_ns * resident / task_ns, resident);
  const uint64_t tasks = std::min<uint64_t>(most, whole.tasks() / kFewWindows);
  if (tasks < std::max(resident, whole.row_tasks())) return {};
  return {static_cast<uint32_t>(tasks), tasks * task_ns / resident,
          task_ns + uint64_t{settings.window_lead_us} * 1000};
}

FormKind FormChoice::next(unsigned may, bool in_order) {
  const FormKind form = pick(may, in_order);
  same_ = form == last_ ? same_ + 1 : 0;
  last_ = form;
  timed_ = task_ns_[static_cast<int>(form)] == 0 || same_ % kTimed == 0;
  return form;
}

FormKind FormChoice::pick(unsigned may, bool in_order) {
  constexpr FormKind kFirst[] = {FormKind::kLoop, FormKind::kOneTask, FormKind::kWindows};
  const auto can = [&](FormKind form) {
    return form == FormKind::kLoop || (may & 1u << static_cast<int>(form)) != 0;
  };
  const auto its = [&](FormKind form) { return task_ns_[static_cast<int>(form)]; };
  FormKind fastest = in_order && can(FormKind::kOneTask) ? FormKind::kOneTask : FormKind::kLoop;
  for (const FormKind form : kFirst)
    if (can(form) && its(form) != 0 && (its(fastest) == 0 || its(form) < its(fastest)))
      fastest = form;
  if (its(fastest) == 0) return fastest;
  FormKind others[kForms];
  uint32_t n = 0;
  for (const FormKind form : kFirst) {
    if (!can(form) || form == fastest) continue;
    if (its(form) != 0)
      others[n++] = form;
    else if (asked_[static_cast<int>(form)]++ % kUnknownAgain == 0)
      return form;
  }
  if (n == 0 || ++launches_ % (kAgain / n) != 0) return fastest;
  return others[launches_ / (kAgain / n) % n];
}

void FormChoice::observe(FormKind form, uint32_t tasks, uint64_t ns) {
  if (tasks == 0 || ns == 0) return;
  const double sample = static_cast<double>(ns) / tasks;
  double& known = task_ns_[static_cast<int>(form)];
  known = known == 0 ? sample : (known * 3 + sample) / 4;
}

uint64_t resume_bytes(uint32_t tasks, uint32_t block_threads, uint32_t state_bytes) {
  const uint64_t bytes = tasks * SLUICE_RESUME_STRIDE(block_threads, state_bytes);
  return bytes <= kMaxResumeBytes ? bytes : 0;
}

uint32_t once_blocks(uint32_t tasks_left, bool proxy) {
  return std::max(tasks_left, 1u) + (proxy ? 1 : 0);
}

sluice_preempt_params make_params(const uint32_t grid[3], uint32_t tasks, const Geometry& geometry,
                                  const LoopSettings& settings) {
  sluice_preempt_params p{};
  p.grid_x = grid[0];
  p.grid_y = grid[1];
  p.grid_z = grid[2];
  p.tasks = tasks;
  p.chunk = geometry.chunk;
  p.flags = settings.fixed_chunk != 0 ? SLUICE_LAUNCH_FIXED : 0;
  if (grid[1] == 1 && grid[2] == 1) p.flags |= SLUICE_LAUNCH_ONE_ROW;
  const MagicDivisor x = magic_divisor(grid[0]);
  const MagicDivisor y = magic_divisor(grid[1]);
  p.magic_x = x.magic;
  p.magic_y = y.magic;
  p.shift_x1 = x.shift1;
  p.shift_x2 = x.shift2;
  p.shift_y1 = y.shift1;
  p.shift_y2 = y.shift2;
  p.target_clocks = static_cast<uint32_t>(std::min<uint64_t>(
      uint64_t{settings.target_us} * kChunkQuarters * settings.clock_khz / 4000, UINT32_MAX / 2));
  p.chunk_max = std::max<uint16_t>(settings.chunk_max, 1);
  p.batch_shift = settings.fixed_chunk != 0 ? 0 : settings.batch_shift;
  p.tail_shift = geometry.tail_shift;
  p.first_tickets = geometry.first_tickets;
  p.left_slots = geometry.blocks;
  p.sm_hi = 0xffff;
  return p;
}

void ChunkModel::observe(uint32_t tasks, uint32_t blocks, uint64_t ns) {
  if (tasks == 0 || blocks == 0 || ns == 0) return;
  // 64 bit is enough: 2^31 blocks for 2^32 ns would be needed to overflow, and blocks are resident.
  const uint64_t sample = std::max<uint64_t>(1, ns * std::min(blocks, tasks) / tasks);
  task_ns_ = task_ns_ == 0 ? sample : (task_ns_ * 3 + sample) / 4;
}

uint32_t ChunkModel::chunk() const {
  if (task_ns_ == 0) return 1;
  return static_cast<uint32_t>(std::clamp<uint64_t>(target_ns_ / task_ns_, 1, kMaxChunk));
}

}  // namespace sluice::worker
