// SPDX-License-Identifier: Apache-2.0
// Accesses: which bytes, written before or not, raced with whom.
#include "kernels/exec/checker/checker_block.h"

#include <algorithm>
#include <cstring>

namespace sluice::exec::detail {
namespace {

const char* space_name(uint32_t space) {
  return space == kSpaceShared ? "shared" : space == kSpaceLocal ? "local" : "global";
}

template <class T>
const T* lanes_of(const Warp& w, uint32_t operand) {
  return reinterpret_cast<const T*>(((operand & kConstBit) != 0 ? w.consts : w.regs) +
                                    (operand & ~kConstBit));
}

uint64_t address_of(const Warp& w, uint32_t operand, bool narrow, int64_t offset, uint32_t lane) {
  if (narrow) return static_cast<uint32_t>(lanes_of<uint32_t>(w, operand)[lane] + offset);
  return lanes_of<uint64_t>(w, operand)[lane] + static_cast<uint64_t>(offset);
}

// Instructions before a compare-and-swap within which its first guess is loaded.
constexpr ptrdiff_t kGuessDistance = 64;

}  // namespace

BlockChecker::BlockChecker(Checker& checker, const BlockState& block, const Code& code,
                           std::string kernel, const void* program, uint32_t register_bytes)
    : checker_(checker),
      block_(block),
      code_(code),
      kernel_(std::move(kernel)),
      register_bytes_(register_bytes) {
  const std::lock_guard lock(checker_.shadow().mutex());
  launch_ = checker_.shadow().launch(program, block.shape.grid_id);
}

void BlockChecker::start() {
  const CheckOptions& check = checker_.options();
  linear_ = static_cast<uint32_t>(
      block_.ctaid.x + uint64_t{block_.shape.grid.x} *
                           (block_.ctaid.y + uint64_t{block_.shape.grid.y} * block_.ctaid.z));
  if (check.race) {
    shared_cells_.assign(block_.shared_bytes, {});
    known_lanes_.assign(block_.warp_count, {});
    known_warps_.assign(block_.warp_count, {});
    known_here_.assign(size_t{block_.warp_count} * kWarpLanes, 0);
    known_blocks_.clear();
    fenced_ = {};
    shared_published_.clear();
  }
  if (check.uninit) {
    shared_written_.assign(block_.shared_bytes, false);
    local_written_.assign(size_t{block_.local_bytes} * block_.warp_count * kWarpLanes, false);
    values_.start(block_.warp_count, register_bytes_, code_.predicates);
  }
  for (Watch& w : barriers_) w = {};
}

uint32_t BlockChecker::line_of(const Inst& in) const {
  const auto pc = static_cast<size_t>(&in - code_.code.data());
  return pc < code_.lines.size() ? code_.lines[pc] : 0;
}

// A plain load of what a compare-and-swap close behind works on is its first guess, which that
// proves right or wrong: no race.
bool BlockChecker::guess_of_exchange(const Inst& in) {
  const auto [it, added] = guesses_.emplace(&in, false);
  if (!added) return it->second;
  const Inst* const begin = code_.code.data();
  const Inst* const end = begin + std::min<ptrdiff_t>(static_cast<ptrdiff_t>(code_.code.size()),
                                                      &in - begin + kGuessDistance);
  for (const Inst* next = &in + 1; next < end && !it->second; ++next)
    it->second =
        memory_op(next->op).kind == MemoryOp::kExchange && next->a == in.a && next->imm == in.imm;
  return it->second;
}

bool BlockChecker::add_access(Warp& w, uint32_t lane, uint32_t space, uint64_t address,
                              uint32_t bytes, bool write, bool read, bool strong) {
  if (space == kSpaceGeneric || space == kSpaceGlobal) {
    const uint64_t window = address & ~(kWindowBytes - 1);
    if (window == kParamWindow) return false;
    if (window == kSharedWindow || window == kLocalWindow) {
      space = window == kSharedWindow ? kSpaceCluster : kSpaceLocal;
      address &= kWindowBytes - 1;
    } else {
      space = kSpaceGlobal;
    }
  } else if (space != kSpaceShared && space != kSpaceLocal && space != kSpaceCluster) {
    return false;
  }
  if (space == kSpaceShared || space == kSpaceCluster) {
    space = kSpaceShared;
    const BlockState* const owner = owner_of(block_, address);
    address &= kRankStride - 1;
    if (owner != &block_) {
      if (owner == nullptr) return false;
      if (strong && checker_.options().race) {
        KnownTimes& published = owner->checker->shared_published_[address];
        if (read) learn(w.index * kWarpLanes + lane, published);
        now_ = ++launch_->time;
        if (write) publish(published, w, true);
      }
      if (!write) return false;
      std::vector<bool>& written = owner->checker->shared_written_;
      for (uint64_t k = address; k < address + bytes && k < written.size(); ++k) written[k] = true;
      return false;
    }
  }
  Access a;
  a.lane = static_cast<uint8_t>(lane);
  a.space = static_cast<uint8_t>(space);
  a.read = read;
  a.write = write;
  a.strong = strong;
  a.bytes = bytes;
  a.address = address;
  accesses_.push_back(a);
  return true;
}

void BlockChecker::collect(Warp& w, const Inst& in, const MemoryOp& op) {
  accesses_.clear();
  const bool narrow = (in.mod & kModAddress32) != 0;
  if (op.kind == MemoryOp::kCopyAsync) {
    const uint32_t* offsets = block_.aux + in.aux;
    const auto bytes = static_cast<uint32_t>(in.imm);
    for (uint32_t m = w.exec; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      add_access(w, lane, kSpaceShared,
                 address_of(w, in.a, narrow, static_cast<int32_t>(offsets[0]), lane), bytes, true,
                 false, false);
      const uint32_t limit =
          in.c == kNoOperand ? bytes : std::min(bytes, lanes_of<uint32_t>(w, in.c)[lane]);
      if (limit != 0)
        add_access(w, lane, kSpaceGlobal,
                   address_of(w, in.b, false, static_cast<int32_t>(offsets[1]), lane), limit, false,
                   true, false);
    }
    return;
  }
  const bool atomic = op.kind == MemoryOp::kAtomic || op.kind == MemoryOp::kExchange;
  const bool strong =
      atomic || (in.mod & kModStrong) != 0 || (op.kind == MemoryOp::kLoad && guess_of_exchange(in));
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint64_t address = address_of(w, in.a, narrow, in.imm, lane);
    for (uint32_t k = 0; k < op.count; ++k) {
      if (op.kind == MemoryOp::kLoad && op.count > 1 && block_.aux[in.aux + k] == kNoOperand)
        continue;
      if (!add_access(w, lane, in.mod & kSpaceMask, address + k * op.bytes, op.bytes,
                      op.kind != MemoryOp::kLoad, op.kind != MemoryOp::kStore, strong))
        continue;
      accesses_.back().element = static_cast<uint8_t>(k);
      if (op.kind == MemoryOp::kStore)
        accesses_.back().silent = is_silent(w, in, op, accesses_.back(), k);
    }
  }
}

// Where the access is in this process; null: nowhere.
const uint8_t* BlockChecker::host_address(const Warp& w, const Access& a) const {
  switch (a.space) {
    case kSpaceShared:
      return a.bytes <= block_.shared_bytes && a.address <= block_.shared_bytes - a.bytes
                 ? block_.shared + a.address
                 : nullptr;
    case kSpaceLocal:
      return a.bytes <= block_.local_bytes && a.address <= block_.local_bytes - a.bytes
                 ? w.local + size_t{block_.local_bytes} * a.lane + a.address
                 : nullptr;
    default:
      return block_.map->find(a.address, a.bytes).bytes != 0
                 ? reinterpret_cast<const uint8_t*>(a.address)
                 : nullptr;
  }
}

bool BlockChecker::is_silent(const Warp& w, const Inst& in, const MemoryOp& op, const Access& a,
                             uint32_t element) const {
  if (!checker_.options().race || a.space == kSpaceLocal) return false;
  const uint8_t* there = host_address(w, a);
  if (there == nullptr) return false;
  const uint32_t operand = op.count == 1 ? in.b : block_.aux[in.aux + element];
  uint64_t value = op.bytes == 8 ? lanes_of<uint64_t>(w, operand)[a.lane]
                                 : lanes_of<uint32_t>(w, operand)[a.lane];
  return std::memcmp(there, &value, op.bytes) == 0;
}

Flow BlockChecker::execute(Warp& w, const Inst& in, Handler handler) {
  const MemoryOp& op = memory_op(in.op);
  if (op.kind == MemoryOp::kNone) {
    if (follows_values(in.op)) return values_.execute(w, in, handler);
    if (checker_.options().uninit && values_.any(w)) {
      ValueShadow::Origin origin;
      if (in.op == static_cast<uint16_t>(Op::k_bra))
        if (const uint32_t lanes = values_.undefined_predicate(w, in.guard, origin); lanes != 0)
          used(w, in, lanes, origin, "it decides a branch");
      values_.define_results(w, in);
    }
    return handler(w, in);
  }
  if (op.kind == MemoryOp::kFence) {
    const std::lock_guard lock(checker_.shadow().mutex());
    fenced_[w.index] = launch_->time++;
    return handler(w, in);
  }
  if (op.kind >= MemoryOp::kLanes) {
    current_ = &in;
    const Flow flow = handler(w, in);
    current_ = nullptr;
    return flow;
  }
  // Everything under one lock, that what a strong access publishes is there for the next one.
  const std::lock_guard lock(checker_.shadow().mutex());
  collect(w, in, op);
  const bool follows = checker_.options().uninit && op.kind != MemoryOp::kCopyAsync;
  if (follows && values_.any(w)) follow_store(w, in, op);
  // Of what the load reads, before anything writes there.
  const Flow flow = handler(w, in);
  if (flow != Flow::kNext) return flow;
  if (follows) follow_load(w, in, op);
  record(w, in);
  return flow;
}

namespace {

// Bulk reductions are atomic, element by element.
bool is_reduction(const Inst& in) {
  switch (static_cast<Op>(in.op)) {
    case Op::k_cpbulk:
    case Op::k_tensorstore:
      return (in.imm >> 8 & 15) != static_cast<int64_t>(BulkReduction::kNone);
    case Op::k_stasync:
      return (in.imm & 15) != static_cast<int64_t>(BulkReduction::kNone);
    default:
      return false;
  }
}

}  // namespace

void BlockChecker::lane_access(Warp& w, uint32_t space, uint64_t address, uint32_t bytes,
                               bool write, uint32_t lane) {
  if (current_ == nullptr) return;
  const auto kind = memory_op(current_->op).kind;
  const bool synchronises =
      kind == MemoryOp::kMbarrier || (kind == MemoryOp::kBulk && write && bytes == 8 &&
                                      (space == kSpaceShared || space == kSpaceCluster));
  const std::lock_guard lock(checker_.shadow().mutex());
  accesses_.clear();
  const bool reduces = write && is_reduction(*current_);
  add_access(w, lane, space, address, bytes, write || synchronises,
             !write || synchronises || reduces, synchronises || reduces);
  for (Access& a : accesses_) a.synchronises = synchronises;
  record(w, *current_);
}

void BlockChecker::record(Warp& w, const Inst& in) {
  now_ = ++launch_->time;
  const uint32_t line = line_of(in);
  const CheckOptions& check = checker_.options();
  const bool releases = (in.mod & kModRelease) != 0;
  for (const Access& a : accesses_) {
    if (check.uninit && a.write) set_written(w, a, !a.undefined);
    // Matrices and copies have no register whose value could be followed: reading is the mistake.
    if (check.uninit && a.read && !a.write && current_ != nullptr && never_written(w, a))
      used(w, in, 1u << a.lane, {line, a.space, a.bytes, a.address}, "");
    if (!check.race || a.space == kSpaceLocal) continue;
    // What is read strongly tells what was published there, before it is asked who raced. Whether
    // the reader has a fence behind it or says .acquire is not asked.
    auto& published = a.space == kSpaceShared ? shared_published_ : launch_->published;
    const uint32_t thread = w.index * kWarpLanes + a.lane;
    if (a.strong && a.read) {
      const auto it = published.find(a.address);
      if (it != published.end()) learn(thread, it->second);
    }
    record_one(w, a, line);
    if (a.strong && a.write) publish(published[a.address], w, releases || a.synchronises);
  }
}

bool BlockChecker::never_written(const Warp& w, const Access& a) const {
  if (a.space == kSpaceGlobal) return checker_.shadow().never_written(a.address, a.bytes);
  if (a.space == kSpaceShared && a.address >= kReservedShared) return false;  // not the program's
  const auto& written = a.space == kSpaceShared ? shared_written_ : local_written_;
  const size_t lane = w.index * kWarpLanes + a.lane;
  const size_t first = a.address + (a.space == kSpaceShared ? 0 : block_.local_bytes * lane);
  for (size_t k = first; k < first + a.bytes && k < written.size(); ++k)
    if (written[k]) return false;
  return true;
}

void BlockChecker::set_written(const Warp& w, const Access& a, bool value) {
  if (a.space == kSpaceGlobal) {
    // What goes there undefined has been reported, and once is enough.
    checker_.shadow().set_written(a.address, a.bytes);
    return;
  }
  auto& written = a.space == kSpaceShared ? shared_written_ : local_written_;
  const size_t lane = w.index * kWarpLanes + a.lane;
  const size_t first = a.address + (a.space == kSpaceShared ? 0 : block_.local_bytes * lane);
  for (size_t k = first; k < first + a.bytes && k < written.size(); ++k) written[k] = value;
}

// The registers that a load or an atomic has just written.
void BlockChecker::follow_load(Warp& w, const Inst& in, const MemoryOp& op) {
  if (op.kind == MemoryOp::kStore) return;
  uint32_t lanes[4] = {};
  ValueShadow::Origin origin{line_of(in), 0, 0, 0};
  for (const Access& a : accesses_) {
    if (!a.read || a.element >= 4 || !never_written(w, a)) continue;
    lanes[a.element] |= 1u << a.lane;
    if (origin.bytes == 0) origin = {origin.line, a.space, a.bytes, a.address};
  }
  for (uint32_t k = 0; k < op.count; ++k) {
    const uint32_t to = op.count == 1 ? in.d : block_.aux[in.aux + k];
    if (to != kNoOperand) values_.set(w, to, lanes[k], origin);
  }
  // An atomic goes on with what it found.
  if (op.kind != MemoryOp::kLoad && lanes[0] != 0)
    used(w, in, lanes[0], origin, "an atomic works on it");
}

// What is undefined in an address, or goes to memory.
void BlockChecker::follow_store(Warp& w, const Inst& in, const MemoryOp& op) {
  ValueShadow::Origin origin;
  if (const uint32_t lanes = values_.undefined(w, in.a, origin); lanes != 0)
    used(w, in, lanes, origin, "it makes an address");
  if (op.kind == MemoryOp::kLoad) return;
  for (uint32_t k = 0; k < op.count; ++k) {
    const uint32_t from = op.count == 1 ? in.b : block_.aux[in.aux + k];
    uint32_t lanes = values_.undefined(w, from, origin);
    if (op.kind == MemoryOp::kExchange) lanes |= values_.undefined(w, in.c, origin);
    if (lanes == 0) continue;
    uint32_t global = 0;
    for (Access& a : accesses_) {
      if (a.element != k || ((lanes >> a.lane) & 1) == 0) continue;
      a.undefined = true;
      if (a.space == kSpaceGlobal || op.kind != MemoryOp::kStore) global |= 1u << a.lane;
    }
    if (global != 0) used(w, in, global, origin, "it goes to memory that others read");
  }
}

void BlockChecker::used(const Warp& w, const Inst& in, uint32_t lanes,
                        const ValueShadow::Origin& origin, const char* how) {
  Finding f;
  f.kind = CheckKind::kUninit;
  f.party = party(origin.line, w.index * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(lanes)),
                  "reads");
  f.space = space_name(origin.space);
  f.address = origin.address;
  f.bytes = origin.bytes;
  f.detail = "nobody has written them";
  if (*how != 0) {
    f.detail += ", and the value counts: " + std::string(how);
    const uint32_t line = line_of(in);
    if (line != origin.line) f.detail += " at PTX line " + std::to_string(line);
  }
  report(std::move(f));
}

void BlockChecker::record_one(const Warp& w, const Access& a, uint32_t line) {
  if (a.space == kSpaceShared) {
    for (uint64_t k = a.address; k < a.address + a.bytes && k < shared_cells_.size(); ++k)
      touch(shared_cells_[k], w, a, line, 1);
    return;
  }
  constexpr uint64_t kGranule = GlobalShadow::kGranule;
  for (uint64_t at = a.address / kGranule * kGranule; at < a.address + a.bytes; at += kGranule) {
    uint8_t mask = 0;
    for (uint64_t k = 0; k < kGranule; ++k)
      if (at + k >= a.address && at + k < a.address + a.bytes)
        mask |= static_cast<uint8_t>(1u << k);
    touch(checker_.shadow().cell(*launch_, at), w, a, line, mask);
  }
}

bool BlockChecker::comes_before(const AccessRecord& r, bool wrote, const Warp& w,
                                uint32_t lane) const {
  if (r.block != linear_) {
    const auto it = known_blocks_.find(r.block);
    if (it == known_blocks_.end()) return false;
    return (wrote ? it->second.writes : it->second.reads) >= r.time;
  }
  const uint32_t thread = w.index * kWarpLanes + lane;
  if (r.thread == thread || r.time == now_ || known_here_[thread] >= r.time) return true;
  const uint32_t warp = r.thread / kWarpLanes;
  if (warp == w.index) return known_lanes_[warp][lane][r.thread % kWarpLanes] >= r.time;
  return known_warps_[w.index][warp] >= r.time;
}

void BlockChecker::touch(ShadowCell& cell, const Warp& w, const Access& a, uint32_t line,
                         uint8_t mask) {
  const auto conflicts = [&](const AccessRecord& r) {
    return r.time != 0 && (r.mask & mask) != 0 && !(r.strong != 0 && a.strong) &&
           !comes_before(r, &r == &cell.write, w, a.lane);
  };
  // A store of what is there already changes nothing that anybody could see.
  const bool changes = a.write && !a.silent;
  if ((a.read || changes) && conflicts(cell.write)) {
    if (a.read || a.space != kSpaceShared)
      race(cell.write, true, w, a, line);
    else
      cell.contested = cell.write;
  } else if (changes && cell.write.time != now_) {
    cell.contested = {};
  }
  if (a.read && cell.contested.time != 0) {
    race_of_writes(cell.contested, cell.write, a);
    cell.contested = {};
  }
  if (changes)
    for (const AccessRecord* r : {&cell.read, &cell.other_read})
      if (conflicts(*r)) race(*r, false, w, a, line);

  AccessRecord mine;
  mine.time = now_;
  mine.block = linear_;
  mine.line = line;
  mine.thread = static_cast<uint16_t>(w.index * kWarpLanes + a.lane);
  mine.strong = a.strong;
  mine.mask = mask;
  if (a.read && !(a.write && a.strong)) {
    if (cell.read.time != 0 && (cell.read.block != mine.block ||
                                cell.read.thread / kWarpLanes != mine.thread / kWarpLanes))
      cell.other_read = cell.read;
    cell.read = mine;
  }
  if (changes) cell.write = mine;
}

void BlockChecker::race_of_writes(const AccessRecord& first, const AccessRecord& second,
                                  const Access& a) {
  Finding f;
  f.kind = CheckKind::kRace;
  f.party = party(second.line, second.thread, "writes");
  f.has_other = true;
  f.other = party(first.line, first.thread, "writes");
  f.space = space_name(a.space);
  f.address = a.address;
  f.bytes = a.bytes;
  f.detail = "nothing orders the two, and the result is read";
  report(std::move(f));
}

void BlockChecker::race(const AccessRecord& r, bool earlier_wrote, const Warp& w, const Access& a,
                        uint32_t line) {
  const auto verb = [](bool write, bool strong) {
    return std::string(write ? "writes" : "reads") + (strong ? " (strong)" : "");
  };
  Finding f;
  f.kind = CheckKind::kRace;
  f.party = party(line, w.index * kWarpLanes + a.lane, verb(a.write, a.strong));
  f.has_other = true;
  f.other = party(r.line, r.thread, verb(earlier_wrote, r.strong != 0));
  f.other.block = block_of(r.block);
  f.space = space_name(a.space);
  f.address = a.address;
  f.bytes = a.bytes;
  f.detail = r.block != linear_                 ? "nothing orders the two blocks"
             : r.thread / kWarpLanes == w.index ? "nothing orders the two lanes of a warp"
                                                : "no barrier between them";
  report(std::move(f));
}

// --- for people ---

Dim3 BlockChecker::thread_of(uint32_t n) const {
  const Dim3& b = block_.shape.block;
  return {n % b.x, n / b.x % b.y, n / b.x / b.y};
}
Dim3 BlockChecker::block_of(uint32_t n) const {
  const Dim3& g = block_.shape.grid;
  return {n % g.x, n / g.x % g.y, n / g.x / g.y};
}

CheckParty BlockChecker::party(uint32_t line, uint32_t thread, std::string what) const {
  return {line, source_of(line), block_.ctaid, thread_of(thread), std::move(what)};
}
CheckParty BlockChecker::party(const Inst& in, uint32_t thread, std::string what) const {
  return party(line_of(in), thread, std::move(what));
}

std::string BlockChecker::source_of(uint32_t line) const {
  const auto it = std::upper_bound(code_.sources.begin(), code_.sources.end(), line,
                                   [](uint32_t l, const SourceLine& s) { return l < s.ptx_line; });
  if (it == code_.sources.begin()) return {};
  const SourceLine& s = *std::prev(it);
  if (s.file >= code_.source_files.size()) return {};
  return code_.source_files[s.file] + ":" + std::to_string(s.line);
}

void BlockChecker::report(Finding f) {
  f.kernel = kernel_;
  if (checker_.options().error && !failed_) {
    failed_ = true;
    failure_.kind = FaultKind::kTrap;
    failure_.kernel = kernel_;
    failure_.line = f.party.line;
    failure_.block = f.party.block;
    failure_.thread = f.party.thread;
    failure_.address = f.address;
    failure_.bytes = static_cast<uint32_t>(f.bytes);
    failure_.detail = f.describe();
  }
  checker_.report(std::move(f));
}

bool BlockChecker::failed(Fault& fault) const {
  if (failed_) fault = failure_;
  return failed_;
}

void BlockChecker::explain(Fault& fault) const {
  if (!checker_.options().memory) return;
  if (fault.kind != FaultKind::kOutOfBounds && fault.kind != FaultKind::kReadOnly) return;
  const std::string more = checker_.explain_address(fault.address, fault.bytes);
  if (!more.empty()) fault.detail += (fault.detail.empty() ? "" : "; ") + more;
}

}  // namespace sluice::exec::detail
