// SPDX-License-Identifier: Apache-2.0
#include "kernels/tool/eviction_run.h"

#include <algorithm>
#include <cstring>

#include "mediator/base/grid_windows.h"
#include "mediator/base/magic_divisor.h"

namespace sluice::tool {

namespace {

constexpr std::uint32_t kSms = 4;       // of the GPU, as blocks read it
constexpr std::uint32_t kResident = 6;  // blocks of an original, or of a one-task clone, at a time
constexpr std::uint32_t kLeftSlots = 64;
constexpr std::size_t kAlign = 256;  // as cuMemAlloc aligns

}  // namespace

class EvictionRun::World : public exec::Environment {
 public:
  World() { strict = true; }
  // Fast enough that workers come to their turn of polling the signal (SLUICE_DUTY_NS).
  std::uint64_t global_timer_ns() override { return now_ += 700; }
  void print(std::string_view) override {}

 private:
  std::uint64_t now_ = 1000;
};

EvictionRun::EvictionRun() : world_(std::make_unique<World>()) {}
EvictionRun::~EvictionRun() = default;

EvictionRun::Memory EvictionRun::allocate(std::size_t bytes) {
  Memory m;
  m.bytes = std::max<std::size_t>(bytes, 1);
  m.owned = std::make_unique<std::byte[]>(m.bytes + kAlign);
  const auto raw = reinterpret_cast<std::uint64_t>(m.owned.get());
  m.address = (raw + kAlign - 1) / kAlign * kAlign;
  return m;
}

Result<std::unique_ptr<EvictionRun>> EvictionRun::load(const std::string& ptx) {
  std::unique_ptr<EvictionRun> run(new EvictionRun);
  auto rewritten = passes::rewrite_module(ptx);
  if (!rewritten) return std::move(rewritten).error();
  run->rewritten_ = std::move(*rewritten);
  exec::DecodeOptions options;
  options.refuse_kernels_alone = true;
  auto program = exec::decode_text(run->rewritten_.text, options);
  if (!program) return std::move(program).error();
  std::vector<std::uint64_t> addresses;
  for (const exec::SymbolInfo& s : (*program)->symbols()) {
    Memory m = run->allocate(s.bytes);
    if (auto added = run->map_.add(m.address, m.bytes); !added) return std::move(added).error();
    addresses.push_back(m.address);
    run->symbols_.push_back(std::move(m));
  }
  auto image = exec::Image::make(*program, addresses);
  if (!image) return std::move(image).error();
  run->image_ = *image;
  for (std::size_t k = 0; k < run->symbols_.size(); ++k) {
    const auto values = run->image_->initial_values(k);
    if (!values.empty())
      std::memcpy(reinterpret_cast<void*>(run->symbols_[k].address), values.data(), values.size());
  }
  return run;
}

const passes::KernelReport* EvictionRun::report(std::string_view kernel) const {
  for (const passes::KernelReport& r : rewritten_.kernels)
    if (r.name == kernel) return &r;
  return nullptr;
}

std::size_t EvictionRun::add_buffer(std::size_t bytes) {
  Memory m = allocate(bytes);
  std::memset(reinterpret_cast<void*>(m.address), 0, m.bytes);
  (void)map_.add(m.address, m.bytes);
  buffers_.push_back(std::move(m));
  return buffers_.size() - 1;
}

std::byte* EvictionRun::symbol(std::string_view name) {
  const auto symbols = program().symbols();
  for (std::size_t k = 0; k < symbols.size(); ++k)
    if (symbols[k].name == name) return reinterpret_cast<std::byte*>(symbols_[k].address);
  return nullptr;
}

std::vector<std::vector<std::byte>> EvictionRun::contents() const {
  std::vector<std::vector<std::byte>> all;
  for (const auto* list : {&buffers_, &symbols_})
    for (const Memory& m : *list) {
      const auto* begin = reinterpret_cast<const std::byte*>(m.address);
      all.emplace_back(begin, begin + m.bytes);
    }
  return all;
}

void EvictionRun::restore(const std::vector<std::vector<std::byte>>& contents) {
  std::size_t k = 0;
  for (auto* list : {&buffers_, &symbols_})
    for (Memory& m : *list) {
      std::memcpy(reinterpret_cast<void*>(m.address), contents[k].data(), m.bytes);
      ++k;
    }
}

namespace {

// Resident blocks that take turns.
class Turns {
 public:
  Turns(std::mt19937_64& random, std::uint64_t quantum) : random_(random), quantum_(quantum) {}

  void add(std::unique_ptr<exec::Block> block) { blocks_.push_back(std::move(block)); }
  std::size_t size() const { return blocks_.size(); }
  // One turn of one block; a finished one leaves. The error is its fault.
  Result<std::uint64_t> turn() {
    const std::size_t k = random_() % blocks_.size();
    const exec::RunResult r = blocks_[k]->run(1 + random_() % quantum_);
    if (r.state == exec::RunState::kFault) return Error{0, blocks_[k]->fault().describe()};
    if (r.state == exec::RunState::kDone)
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(k));
    return r.steps + 1;
  }

 private:
  std::mt19937_64& random_;
  std::uint64_t quantum_;
  std::vector<std::unique_ptr<exec::Block>> blocks_;
};

}  // namespace

Result<EvictionStats> EvictionRun::run_original(const KernelLaunch& launch, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // From block by block to a few instructions in turn.
  static constexpr std::uint64_t kQuanta[] = {300, 2000, 40, 3};
  Turns turns(random, kQuanta[seed % std::size(kQuanta)]);
  EvictionStats stats;
  stats.physical = 1;
  exec::LaunchShape shape{launch.grid, launch.block, launch.dynamic_shared, 0};
  const std::uint64_t total = launch.grid.count();
  std::uint64_t next = 0;
  while (next < total || turns.size() != 0) {
    while (next < total && turns.size() < kResident) {
      auto block = exec::Block::make(image_, launch.kernel, shape, launch.params, map_, *world_);
      if (!block) return std::move(block).error();
      (*block)->start({static_cast<std::uint32_t>(next % launch.grid.x),
                       static_cast<std::uint32_t>(next / launch.grid.x % launch.grid.y),
                       static_cast<std::uint32_t>(next / launch.grid.x / launch.grid.y)},
                      {static_cast<std::uint32_t>(random() % kSms), kSms});
      ++next;
      turns.add(std::move(*block));
    }
    auto steps = turns.turn();
    if (!steps) return std::move(steps).error();
    stats.steps += *steps;
    if (stats.steps > EvictionOptions{}.step_limit) return Error{0, "the original does not end"};
  }
  return stats;
}

// One logical launch of a clone with its physical launches.
class EvictionRun::Evicted {
 public:
  Evicted(EvictionRun& run, const KernelLaunch& launch, const passes::KernelReport& report,
          const EvictionOptions& options)
      : run_(run), launch_(launch), report_(report), options_(options), random_(options.seed) {
    std::memset(&device(), 0, sizeof(Device));
  }
  ~Evicted() {
    run_.map_.remove(memory_.address);
    if (state_.owned) run_.map_.remove(state_.address);
  }

  Result<EvictionStats> go() {
    if (auto added = run_.map_.add(memory_.address, memory_.bytes); !added)
      return std::move(added).error();
    choose();
    if (state_.owned) {
      if (auto added = run_.map_.add(state_.address, state_.bytes); !added)
        return std::move(added).error();
    }
    const std::uint32_t evictions =
        options_.most_evictions == 0
            ? 0
            : static_cast<std::uint32_t>(random_() % (options_.most_evictions + 1));
    do {
      // Spread over the work, some of them at the very start, where workers have drawn nothing yet.
      const bool evict = stats_.physical < evictions;
      const std::uint64_t reach =
          random_() % 4 == 0 ? 300 : 2 * options_.expected_steps / evictions_or_one(evictions);
      if (auto r = physical(evict ? random_() % (reach + 1) : kNever); !r)
        return std::move(r).error().with_context(stats_.setting);
      if (Result<void> r = check(); !r) return std::move(r).error().with_context(stats_.setting);
      if (device().control.done == 0) ++stats_.evictions;
      // Far more launches than evictions: nothing gets on.
      if (stats_.physical > evictions + 20) return Error{0, stats_.setting + ": is never done"};
    } while (device().control.done == 0);
    return stats_;
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static std::uint64_t evictions_or_one(std::uint32_t n) { return std::max(n, 1u); }

  struct Device {
    sluice_launch_control control;
    sluice_launch_control before;  // of the launch before it in the stream
    sluice_launch_record record;
    alignas(128) sluice_evict_word signal;
    alignas(128) struct {
      std::uint32_t sm_workers[SLUICE_LEFT_SMS];
      std::uint64_t slot[kLeftSlots];
    } left;
  };
  Device& device() { return *reinterpret_cast<Device*>(memory_.address); }
  std::uint32_t total() const { return static_cast<std::uint32_t>(launch_.grid.count()); }
  std::uint64_t at(std::size_t offset) const { return memory_.address + offset; }

  // Everything that does not change between the physical launches.
  void choose() {
    one_task_ = report_.once || (report_.one_task_too && random_() % 3 == 0);
    windows_ = !one_task_ && report_.windows_too && random_() % 3 == 0;
    window_tasks_ = 1 + static_cast<std::uint32_t>(random_() % (total() / 2 + 1));
    workers_ = 1 + static_cast<std::uint32_t>(random_() % 6);
    static constexpr std::uint16_t kChunks[] = {1, 1, 2, 3, 5, 8, 16, 32, 64};
    chunk_ = kChunks[random_() % std::size(kChunks)];
    chunk_max_ = static_cast<std::uint16_t>(chunk_ << (random_() % 3));
    batch_shift_ = static_cast<std::uint8_t>(random_() % 4);
    target_ = 50u << (random_() % 12);
    flags_ = 0;
    if (random_() % 2 == 0) flags_ |= report_.resumable ? SLUICE_LAUNCH_DUTY : SLUICE_LAUNCH_PROXY;
    if (report_.resumable) {
      stride_ = SLUICE_RESUME_STRIDE(launch_.block.count(), report_.state_bytes);
      // What stands there at first must not matter.
      state_ = run_.allocate(stride_ * total());
      std::memset(reinterpret_cast<void*>(state_.address), 0xa5, state_.bytes);
    }
    if (random_() % 3 == 0) flags_ |= SLUICE_LAUNCH_FIXED;
    static constexpr std::uint64_t kQuanta[] = {3, 20, 150, 1500};
    quantum_ = kQuanta[random_() % std::size(kQuanta)];
    stats_.setting = launch_.kernel + ", seed " + std::to_string(options_.seed) + ", " +
                     std::to_string(workers_) + " workers, chunk " + std::to_string(chunk_) +
                     ((flags_ & SLUICE_LAUNCH_PROXY) ? ", proxy" : "") +
                     ((flags_ & SLUICE_LAUNCH_DUTY) ? ", duty" : "") +
                     ((flags_ & SLUICE_LAUNCH_FIXED) ? ", fixed" : "") +
                     (one_task_ ? ", one task a block" : "") +
                     (windows_ ? ", windows of " + std::to_string(window_tasks_) : "");
  }

  sluice_preempt_params block_params(bool spatial) {
    sluice_preempt_params p{};
    p.control = at(offsetof(Device, control));
    p.signal = at(offsetof(Device, signal));
    p.record = at(offsetof(Device, record));
    p.left = at(offsetof(Device, left));
    p.grid_x = launch_.grid.x;
    p.grid_y = launch_.grid.y;
    p.grid_z = launch_.grid.z;
    p.tasks = total();
    p.generation = ++generation_;
    p.chunk = chunk_;
    p.chunk_max = chunk_max_;
    p.batch_shift = batch_shift_;
    p.tail_shift = static_cast<std::uint8_t>(random_() % 4);
    p.target_clocks = target_;
    p.left_slots = kLeftSlots;
    p.flags =
        static_cast<std::uint16_t>(flags_ | (stats_.physical == 0 ? 0 : SLUICE_LAUNCH_RESUME));
    p.sm_hi = kSms;
    if (one_task_) p.worker_base = admitted_;
    if (launch_.grid.y == 1 && launch_.grid.z == 1 && random_() % 2 == 0)
      p.flags |= SLUICE_LAUNCH_ONE_ROW;
    p.state = state_.address;
    p.state_stride = static_cast<std::uint32_t>(stride_);
    if (spatial) {
      p.flags |= SLUICE_LAUNCH_SPATIAL;
      p.sm_lo = static_cast<std::uint16_t>(random_() % kSms);
      p.sm_hi = static_cast<std::uint16_t>(p.sm_lo + 1 + random_() % (kSms - p.sm_lo));
      p.sm_quota = static_cast<std::uint16_t>(random_() % 3);
      p.place = static_cast<std::uint32_t>(random_() % 6);
    }
    const MagicDivisor x = magic_divisor(launch_.grid.x), y = magic_divisor(launch_.grid.y);
    p.magic_x = x.magic;
    p.shift_x1 = x.shift1;
    p.shift_x2 = x.shift2;
    p.magic_y = y.magic;
    p.shift_y1 = y.shift1;
    p.shift_y2 = y.shift2;
    return p;
  }

  // The same in windows, of which none begins after `evict_at` steps. Two of them run at a time.
  Result<void> physical_windows(std::uint64_t evict_at) {
    ++stats_.physical;
    ++generation_;
    const std::uint32_t whole[3] = {launch_.grid.x, launch_.grid.y, launch_.grid.z};
    GridWindows windows(whole, window_tasks_, admitted_);
    Turns turns(random_, quantum_);
    const std::uint64_t before = stats_.steps;
    const auto turn = [&]() -> Result<void> {
      auto steps = turns.turn();
      if (!steps) return std::move(steps).error();
      stats_.steps += *steps;
      if (stats_.steps > options_.step_limit) return Error{0, "does not end"};
      return {};
    };
    for (bool first = true; windows.left() && (first || stats_.steps - before < evict_at);
         first = false) {
      exec::LaunchShape shape;
      std::uint32_t grid[3];
      sluice_window_params p = windows.next(grid);
      device().before.done = 1;
      if (random_() % 2 == 0) p.pred = at(offsetof(Device, before));
      std::vector<std::byte> params(report_.param_offset_of_block + sizeof p);
      std::memcpy(params.data(), launch_.params.data(), launch_.params.size());
      std::memcpy(params.data() + report_.param_offset_of_block, &p, sizeof p);
      shape.grid = {grid[0], grid[1], grid[2]};
      shape.block = launch_.block;
      shape.dynamic_shared_bytes = launch_.dynamic_shared;
      // In its stream, behind the window before the last one.
      if (windows.stream() == 0)
        while (turns.size() != 0)
          if (auto r = turn(); !r) return r;
      const std::string clone = launch_.kernel + SLUICE_WINDOW_SUFFIX;
      for (std::uint32_t n = 0; n < shape.grid.count(); ++n) {
        while (turns.size() >= kResident)
          if (auto r = turn(); !r) return r;
        auto block = exec::Block::make(run_.image_, clone, shape, params, run_.map_, *run_.world_);
        if (!block) return std::move(block).error();
        (*block)->start({n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1]},
                        {n % kSms, kSms});
        turns.add(std::move(*block));
      }
    }
    while (turns.size() != 0)
      if (auto r = turn(); !r) return r;
    admitted_ = windows.end();
    // The launcher knows by itself.
    device().control.done = windows.left() ? 0 : 1;
    return {};
  }

  // One physical launch; the evict word is set after `evict_at` steps.
  Result<void> physical(std::uint64_t evict_at) {
    if (windows_) return physical_windows(evict_at);
    const bool once = one_task_ || report_.resumable;
    const bool spatial = !once && random_() % 4 == 0;
    const sluice_preempt_params p = block_params(spatial);
    const std::uint32_t proxy = (p.flags & SLUICE_LAUNCH_PROXY) ? 1 : 0;
    ++stats_.physical;
    // Enough workers that every SM has one.
    std::uint32_t workers = spatial ? std::max(workers_, kSms) + kSms : workers_;
    if (once)
      workers = total() - (one_task_ ? admitted_ : std::min(total(), device().control.finished));
    std::vector<std::byte> params(report_.param_offset_of_block + sizeof p);
    std::memcpy(params.data(), launch_.params.data(), launch_.params.size());
    std::memcpy(params.data() + report_.param_offset_of_block, &p, sizeof p);
    exec::LaunchShape shape;
    shape.grid = {workers + proxy, 1, 1};
    shape.block = launch_.block;
    shape.dynamic_shared_bytes =
        launch_.dynamic_shared + (report_.slot == passes::SlotPlace::kDynamicEnd && !one_task_
                                      ? std::uint32_t{SLUICE_PREEMPT_DYNAMIC_BYTES}
                                      : 0u);
    Turns turns(random_, quantum_);
    const std::uint64_t before = stats_.steps;
    std::uint32_t next = 0;
    bool evicted = false;
    while (next < shape.grid.x || turns.size() != 0) {
      while (next < shape.grid.x && (!once || turns.size() < kResident)) {
        auto block = exec::Block::make(
            run_.image_,
            launch_.kernel +
                (report_.one_task_too && one_task_ ? SLUICE_ONE_TASK_SUFFIX : SLUICE_CLONE_SUFFIX),
            shape, params, run_.map_, *run_.world_);
        if (!block) return std::move(block).error();
        (*block)->start({next, 0, 0}, {next % kSms, kSms});
        ++next;
        turns.add(std::move(*block));
      }
      if (!evicted && stats_.steps - before >= evict_at) {
        evicted = true;
        std::uint16_t lo = 0, hi = 0xffff;
        if (random_() % 4 == 0) {
          lo = static_cast<std::uint16_t>(random_() % kSms);
          hi = static_cast<std::uint16_t>(lo + 1 + random_() % kSms);
        }
        device().signal = SLUICE_EVICT_WORD(generation_, lo, hi);
      }
      auto steps = turns.turn();
      if (!steps) return std::move(steps).error();
      stats_.steps += *steps;
      if (stats_.steps > options_.step_limit) return Error{0, "does not end"};
    }
    return {};
  }

  // The same where a block runs one task: what is admitted has run.
  Result<void> check_admission() {
    const sluice_launch_control& c = device().control;
    const sluice_launch_record& r = device().record;
    const std::uint32_t before = admitted_;
    admitted_ = sluice_admitted(&c, generation_, before);
    if (admitted_ < before || admitted_ > total())
      return Error{0,
                   std::to_string(admitted_) + " tasks admitted, after " + std::to_string(before)};
    if ((c.done == 1) != (admitted_ == total())) return Error{0, "done, or not, but wrongly"};
    // Task 0's store of its state may come behind the last one's, and a report of the proxy as
    // well.
    if (r.state != SLUICE_LAUNCH_RUNNING &&
        (r.state != (c.done ? SLUICE_LAUNCH_DONE : SLUICE_LAUNCH_TOEVICT) ||
         r.generation != generation_ || r.tasks_total != total() || r.tasks_done != admitted_ ||
         r.tasks_fetched > admitted_ || r.left_ns == 0))
      return Error{0, "the record does not say what the control block does"};
    return {};
  }

  // What must hold after every physical launch (abi/preempt.h).
  Result<void> check() {
    if (one_task_) return check_admission();
    if (windows_) return {};
    const sluice_launch_control& c = device().control;
    std::uint32_t left = 0, slots = 0;
    for (std::uint64_t slot : device().left.slot) {
      if (slot == 0) continue;
      ++slots;
      left += static_cast<std::uint32_t>(slot >> 32) - static_cast<std::uint32_t>(slot);
    }
    if (report_.resumable) {
      for (std::uint64_t task = c.left_head & 0xffffffff; task != 0; ++slots, ++left) {
        if (left > total()) return Error{0, "the tasks that have left form a ring"};
        std::uint32_t next;
        std::memcpy(&next, reinterpret_cast<const void*>(state_.address + (task - 1) * stride_), 4);
        task = next;
      }
    }
    const std::uint32_t fetched = std::min(c.next_ticket, total());
    if (c.finished + left != fetched || c.left_count != slots)
      return Error{0, std::to_string(fetched) + " tickets drawn, but " +
                          std::to_string(c.finished) + " run and " + std::to_string(left) +
                          " left over"};
    if ((c.done == 1) != (c.finished == total()) || c.exited[0] != 0 || c.placed[0] != 0 ||
        c.placing_ns[0] != 0 || c.physical != stats_.physical)
      return Error{0, "the control block does not add up"};
    if (report_.in_order && slots != 0) return Error{0, "a ticket was given back out of order"};
    return {};
  }

  EvictionRun& run_;
  const KernelLaunch& launch_;
  const passes::KernelReport& report_;
  const EvictionOptions& options_;
  std::mt19937_64 random_;
  Memory memory_ = run_.allocate(sizeof(Device)), state_;
  std::uint64_t stride_ = 0;
  EvictionStats stats_;
  std::uint32_t generation_ = 0, workers_ = 1, target_ = 0;
  bool one_task_ = false, windows_ = false;
  std::uint32_t window_tasks_ = 1;
  std::uint32_t admitted_ = 0;  // tasks; one task a block, windows
  std::uint16_t chunk_ = 1, chunk_max_ = 1, flags_ = 0;
  std::uint8_t batch_shift_ = 0;
  std::uint64_t quantum_ = 1;
};

Result<EvictionStats> EvictionRun::run_clone(const KernelLaunch& launch,
                                             const EvictionOptions& options) {
  const passes::KernelReport* r = report(launch.kernel);
  if (!r || !r->evictable) return Error{0, launch.kernel + " has no clone"};
  if (r->one_row && launch.grid.y * launch.grid.z != 1)
    return Error{0, launch.kernel + " is evictable only in grids of one row"};
  return Evicted(*this, launch, *r, options).go();
}

std::string first_difference(const std::vector<std::vector<std::byte>>& a,
                             const std::vector<std::vector<std::byte>>& b) {
  for (std::size_t k = 0; k < a.size(); ++k)
    for (std::size_t i = 0; i < a[k].size(); ++i)
      if (a[k][i] != b[k][i])
        return "buffer " + std::to_string(k) + ", byte " + std::to_string(i) + ": " +
               std::to_string(static_cast<unsigned>(a[k][i])) + " in the original, " +
               std::to_string(static_cast<unsigned>(b[k][i])) + " in the clone";
  return {};
}

}  // namespace sluice::tool
