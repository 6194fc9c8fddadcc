// SPDX-License-Identifier: Apache-2.0
// A block's life: allocation, start, turns of its warps, stalls and faults.
#include "kernels/exec/block/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <sys/mman.h>

#include "kernels/exec/run/block_impl.h"
#include "kernels/exec/run/cluster.h"
#include "mediator/base/check.h"

namespace sluice::exec {

Result<std::unique_ptr<Block>> Block::make(std::shared_ptr<const Image> image,
                                           std::string_view entry, const LaunchShape& shape,
                                           std::span<const std::byte> params, MemoryMap& map,
                                           Environment& environment) {
  const detail::ProgramData& data = image->program().data();
  const auto found = data.entry_index.find(std::string(entry));
  if (found == data.entry_index.end()) return Error{0, "no kernel named " + std::string(entry)};
  const EntryInfo& info = data.entries[found->second];
  const auto fail = [&info](const std::string& what) { return Error{0, info.name + ": " + what}; };
  if (!info.refused.empty()) return fail(info.refused);
  const uint64_t threads = shape.block.count();
  if (shape.block.x == 0 || shape.block.y == 0 || shape.block.z == 0 ||
      threads > kMaxBlockThreads || shape.block.x > 1024 || shape.block.y > 1024 ||
      shape.block.z > 64)
    return fail("block of " + std::to_string(threads) + " threads is out of range");
  if (info.max_threads != 0 && threads > info.max_threads)
    return fail("block of " + std::to_string(threads) + " threads, but the kernel allows " +
                std::to_string(info.max_threads));
  const uint32_t* sides = info.required_block;
  if (sides[0] != 0 &&
      (shape.block.x != sides[0] || shape.block.y != sides[1] || shape.block.z != sides[2]))
    return fail("needs blocks of " + std::to_string(sides[0]) + "x" + std::to_string(sides[1]) +
                "x" + std::to_string(sides[2]) + " threads");
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0 || shape.grid.x > 0x7fffffffu ||
      shape.grid.y > 65535 || shape.grid.z > 65535)
    return fail("grid is out of range");
  if (uint64_t{info.static_shared_bytes} + 16 + shape.dynamic_shared_bytes > kMaxSharedBytes + 16)
    return fail("more shared memory than a block can have");
  const Dim3& cluster = shape.cluster;
  if (cluster.count() == 0 || cluster.count() > kMaxClusterBlocks ||
      shape.grid.x % cluster.x != 0 || shape.grid.y % cluster.y != 0 ||
      shape.grid.z % cluster.z != 0)
    return fail("cluster is out of range");
  const uint32_t* required = info.required_cluster;
  if (required[0] != 0 &&
      (cluster.x != required[0] || cluster.y != required[1] || cluster.z != required[2]))
    return fail("needs clusters of " + std::to_string(required[0]) + "x" +
                std::to_string(required[1]) + "x" + std::to_string(required[2]) + " blocks");
  if (params.size() != info.param_bytes)
    return fail("parameters of " + std::to_string(params.size()) + " bytes, not " +
                std::to_string(info.param_bytes));
  std::vector<std::unique_ptr<detail::BlockImpl>> blocks(cluster.count());
  for (auto& block : blocks) {
    block =
        std::make_unique<detail::BlockImpl>(image, found->second, shape, params, map, environment);
    if (!block->has_memory()) return fail("no memory for the block's registers and local memory");
  }
  if (blocks.size() == 1) return std::unique_ptr<Block>(std::move(blocks[0]));
  return std::unique_ptr<Block>(new detail::ClusterImpl(std::move(blocks), shape, environment));
}

namespace detail {
namespace {
uint32_t shared_size(const EntryInfo& info, const LaunchShape& shape) {
  const uint32_t fixed = (info.static_shared_bytes + 15) & ~15u;
  return shape.dynamic_shared_bytes == 0 ? info.static_shared_bytes
                                         : fixed + shape.dynamic_shared_bytes;
}
// With what is reserved, behind it.
uint32_t shared_room(const EntryInfo& info, const LaunchShape& shape) {
  return ((shared_size(info, shape) + 15) & ~15u) + kReservedSharedBytes;
}
// One thread's local memory. Real frames hold registers that ours do not, ours hold parameters that
// real ones pass in registers: twice the limit lets run what runs on hardware.
uint32_t local_size(const ProgramData& program, uint32_t entry, const LaunchShape& shape) {
  const uint64_t fixed = program.entries[entry].local_bytes;
  if (!program.entry_code[entry].dynamic_stack) return static_cast<uint32_t>(fixed);
  const uint64_t stack = std::min(2 * std::min(shape.stack_bytes, kMaxStackBytes), kMaxStackBytes);
  return static_cast<uint32_t>((fixed + stack + 15) & ~uint64_t{15});
}
uint32_t warps_of(const LaunchShape& shape) {
  return static_cast<uint32_t>((shape.block.count() + kWarpLanes - 1) / kWarpLanes);
}
}  // namespace

BlockImpl::BlockImpl(std::shared_ptr<const Image> image, uint32_t entry, const LaunchShape& launch,
                     std::span<const std::byte> parameters, MemoryMap& memory, Environment& world)
    : image_(std::move(image)),
      code_(image_->program().data().code),
      entry_(entry),
      parameters_(parameters.begin(), parameters.end()),
      registers_(size_t{image_->program().data().entry_code[entry].register_bytes} *
                 warps_of(launch)),
      shared_bytes_(shared_room(image_->program().data().entries[entry], launch)),
      local_bytes_(size_t{local_size(image_->program().data(), entry, launch)} * warps_of(launch) *
                   kWarpLanes),
      thread_ids_(size_t{warps_of(launch)} * 3 * kSlotBytes),
      warps_(warps_of(launch)) {
  const ProgramData& program = image_->program().data();
  const EntryInfo& info = program.entries[entry];
  shared = shared_bytes_.data;
  shared_bytes = shared_size(info, launch);
  reserved_shared = shared + (shared_room(info, launch) - kReservedSharedBytes);
  static_shared_bytes = info.static_shared_bytes;
  local_bytes = local_size(program, entry, launch);
  params = reinterpret_cast<const uint8_t*>(parameters_.data());
  param_bytes = static_cast<uint32_t>(parameters_.size());
  aux = code_.aux.data();
  map = &memory;
  environment = &world;
  constants = &image_->data().const_ranges;
  shape = launch;
  warp_count = warps_of(launch);

  if (!has_memory()) return;
  predicates_.assign(size_t{code_.predicates} * warp_count, 0);
  for (uint32_t k = 0; k < warp_count; ++k) set_up_warp(k);
  if (world.checker != nullptr) {
    checker_owner_ =
        std::make_unique<BlockChecker>(*world.checker, *this, code_, info.name, &image_->program(),
                                       program.entry_code[entry].register_bytes);
    checker = checker_owner_.get();
  }
}

void BlockImpl::set_up_warp(uint32_t k) {
  WarpState& w = warps_[k];
  w.regs = registers_.data + size_t{image_->program().data().entry_code[entry_].register_bytes} * k;
  w.consts = image_->data().constants.data;
  w.preds = predicates_.data() + size_t{code_.predicates} * k;
  w.preds[kPredTrue] = 0xffffffffu;
  w.block = this;
  w.index = k;
  w.local = local_bytes_.data + size_t{local_bytes} * kWarpLanes * k;
  const uint32_t threads = static_cast<uint32_t>(shape.block.count());
  auto* ids = reinterpret_cast<uint32_t*>(thread_ids_.data) + size_t{k} * 3 * kWarpLanes;
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint32_t t = k * kWarpLanes + lane;
    if (t >= threads) continue;
    ids[lane] = t % shape.block.x;
    ids[kWarpLanes + lane] = t / shape.block.x % shape.block.y;
    ids[2 * kWarpLanes + lane] = t / shape.block.x / shape.block.y;
  }
  for (uint32_t d = 0; d < 3; ++d) w.tid[d] = ids + size_t{d} * kWarpLanes;
}

void BlockImpl::start(Dim3 block, SmPlace where) {
  ctaid = block;
  place = where;
  faulted_ = false;
  ended = false;
  next_warp_ = 0;
  cluster_arrived_.assign(warp_count, 0);
  cluster_open_ = false;
  valid_barriers.clear();
  for (Barrier& b : barriers_) b.open = false;  // the rest is made anew when it is opened
  const uint32_t threads = static_cast<uint32_t>(shape.block.count());
  const uint32_t begin = image_->program().data().entry_code[entry_].begin;
  for (WarpState& w : warps_) {
    if (code_.has_frames) {
      auto* frame = reinterpret_cast<uint64_t*>(w.regs + kFramePointer);
      auto* stack = reinterpret_cast<uint64_t*>(w.regs + kStackPointer);
      std::fill_n(frame, kWarpLanes, 0);
      std::fill_n(stack, kWarpLanes, image_->program().data().entry_code[entry_].frame_bytes);
    }
    const uint32_t lanes = std::min(threads - w.index * kWarpLanes, kWarpLanes);
    w.reset(lanes == 32 ? 0xffffffffu : (1u << lanes) - 1, begin);
  }
  if (checker != nullptr) checker->start();
}

RunResult BlockImpl::run(uint64_t max_steps) {
  RunResult result;
  if (faulted_) {
    result.state = RunState::kFault;
    return result;
  }
  if (environment->preempt_sequence != nullptr)
    preempt_seen_ = environment->preempt_sequence->load(std::memory_order_relaxed);
  stuck_ = false;
  uint32_t idle = 0;     // warps in a row that cannot run
  uint32_t waiting = 0;  // warps in a row that cannot run or only poll
  while (result.steps < max_steps) {
    WarpState& w = warps_[next_warp_];
    Turn turn;
    turn.end = TurnEnd::kBlocked;
    if (w.split_count != 0) turn = run_turn(w, max_steps - result.steps);
    result.steps += turn.steps;
    clock += turn.steps;
    if (turn.end == TurnEnd::kFault || (checker != nullptr && checker->failed(fault_))) {
      faulted_ = true;
      result.state = RunState::kFault;
      return result;
    }
    // A warp that ran and then blocked has made progress, too.
    idle = turn.steps == 0 ? idle + 1 : 0;
    waiting = turn.end == TurnEnd::kSpun || turn.steps == 0 ? waiting + 1 : 0;
    next_warp_ = next_warp_ + 1 < warp_count ? next_warp_ + 1 : 0;
    if (idle >= warp_count) {
      if (!get_going(result)) return result;
      idle = waiting = 0;
    } else if (waiting >= warp_count) {
      // Everybody polls: let the caller run what they poll for.
      result.waiting = true;
      return result;
    }
    if (preempted()) break;
  }
  if (!is_alive()) result.state = finish();
  return result;
}

// No warp can run. True: one can now; false: the run is over.
bool BlockImpl::get_going(RunResult& result) {
  if (!is_alive()) {
    result.state = finish();
  } else if (resolve_stall()) {
    return true;
  } else if (!cluster.empty() && waits_for_cluster()) {
    stuck_ = result.waiting = true;
  } else {
    fail_stalled();
    result.state = RunState::kFault;
  }
  return false;
}

bool BlockImpl::is_alive() const {
  return std::any_of(warps_.begin(), warps_.end(), [](const WarpState& w) { return w.live != 0; });
}

// Every thread has left. With a checker that is not content it was a fault.
RunState BlockImpl::finish() {
  ended = true;
  if (checker == nullptr) return RunState::kDone;
  checker->finish();
  faulted_ = checker->failed(fault_);
  return faulted_ ? RunState::kFault : RunState::kDone;
}

// Nothing can run: lanes that wait at joins may be the ones that the others wait for. False: none
// does.
bool BlockImpl::resolve_stall() {
  bool released = false;
  for (WarpState& w : warps_) {
    if (!w.release_one_join()) continue;
    released = true;
    if (checker == nullptr) continue;
    const Split& s = w.splits[w.split_count - 1];
    checker->barrier_passed_by(w, s.mask, code_.code[s.pc]);
  }
  return released;
}

void BlockImpl::fail_stalled() {
  faulted_ = true;
  for (WarpState& w : warps_) {
    if (w.split_count == 0) continue;
    const Split& s = w.splits[0];
    w.fault(FaultKind::kDeadlock, static_cast<uint32_t>(__builtin_ctz(s.mask)), 0, 0);
    record_fault(w, s.pc,
                 s.state == SplitState::kBarrier && s.barrier == kClusterBarrier
                     ? "waits at the cluster's barrier, which others never reach"
                 : s.state == SplitState::kBarrier
                     ? "waits at barrier " + std::to_string(s.barrier) + " that others never reach"
                     : "waits for lanes of its warp that never come");
    return;
  }
  SLUICE_CHECK(false);  // a live lane is in a split or at a join
}

void BlockImpl::record_fault(const WarpState& w, uint32_t pc, const std::string& detail) {
  fault_ = Fault{};
  fault_.kind = w.fault_kind;
  fault_.kernel = image_->program().data().entries[entry_].name;
  fault_.line = code_.lines[pc];
  fault_.block = ctaid;
  fault_.thread = {w.tid[0][w.fault_lane], w.tid[1][w.fault_lane], w.tid[2][w.fault_lane]};
  fault_.address = w.fault_address;
  fault_.bytes = w.fault_bytes;
  fault_.detail = detail;
  static constexpr const char* kSpaces[] = {"generic", "global", "shared",
                                            "local",   "param",  "shared::cluster"};
  const uint32_t space = code_.code[pc].mod & kSpaceMask;
  switch (w.fault_kind) {
    case FaultKind::kOutOfBounds:
    case FaultKind::kReadOnly:
    case FaultKind::kMisaligned:
    case FaultKind::kSharedBounds:
    case FaultKind::kNoBlock:
    case FaultKind::kOthersShared:
    case FaultKind::kLocalBounds:
    case FaultKind::kWrongSpace:
      fault_.space = kSpaces[space < std::size(kSpaces) ? space : 0];
      break;
    default:
      break;
  }
  if (!detail.empty()) return;
  if (w.fault_kind == FaultKind::kOutOfBounds)
    fault_.detail = map->near(w.fault_address, w.fault_bytes);
  else if (w.fault_kind == FaultKind::kSharedBounds || w.fault_kind == FaultKind::kNoBlock ||
           w.fault_kind == FaultKind::kOthersShared)
    fault_.detail = near_shared(w.fault_address & (kWindowBytes - 1));
  else if (w.fault_kind == FaultKind::kLocalBounds)
    fault_.detail = "the thread has " + std::to_string(local_bytes) + " bytes";
  if (checker != nullptr) checker->explain(fault_);
}

// What is at an address of shared memory that could not be accessed.
std::string BlockImpl::near_shared(uint64_t inside) const {
  const BlockState* const owner = owner_of(*this, inside);
  if (owner == this) return "the block has " + std::to_string(shared_bytes) + " bytes";
  if (owner == nullptr)
    return "no block of the cluster is there, which has " + std::to_string(shape.cluster.count());
  const std::string name = "block " + std::to_string(owner->rank) + " of the cluster ";
  if (owner->ended) return name + "has ended";
  return name + "has " + std::to_string(owner->shared_bytes) +
         " bytes there, which only instructions of shared::cluster may access";
}

uint64_t find_global(Warp& w, uint64_t address, uint32_t bytes, bool write, CachedRange& cached) {
  const auto holds = [address, bytes](const CachedRange& r) {
    return r.bytes >= bytes && address - r.base <= r.bytes - bytes;
  };
  if (holds(cached)) return address;
  for (const CachedRange& r : write ? w.write_ranges : w.read_ranges) {
    if (!holds(r)) continue;
    cached = CachedRange(r);  // `r` and `cached` are of one array
    return address;
  }
  const MemoryRange range = w.block->map->reach(address, bytes);
  if (range.bytes == 0 || (write && !range.writable)) return 0;
  cached = {range.base, range.bytes};
  return address;
}

void refresh_ranges(Warp& w) {
  const uint64_t version = w.block->map->version();
  if (version == w.range_version) [[likely]]
    return;
  for (CachedRange& r : w.read_ranges) r = {};
  for (CachedRange& r : w.write_ranges) r = {};
  w.range_version = version;
}

namespace {
// From here on whole pages from the kernel, zero and not yet there; below, the heap is quicker.
constexpr size_t kMapBytes = 256 * 1024;
}  // namespace

AlignedBytes::AlignedBytes(size_t size) : bytes(size) {
  const size_t rounded = std::max<size_t>((size + 63) & ~size_t{63}, 64);
  if (rounded >= kMapBytes) {
    void* const pages = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data = pages == MAP_FAILED ? nullptr : static_cast<uint8_t*>(pages);
    return;
  }
  data = static_cast<uint8_t*>(std::aligned_alloc(64, rounded));
  if (data != nullptr) std::memset(data, 0, rounded);
}
AlignedBytes::~AlignedBytes() {
  const size_t rounded = std::max<size_t>((bytes + 63) & ~size_t{63}, 64);
  if (data == nullptr) return;
  if (rounded >= kMapBytes)
    ::munmap(data, rounded);
  else
    std::free(data);
}

}  // namespace detail
}  // namespace sluice::exec
