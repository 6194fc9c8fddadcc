// SPDX-License-Identifier: Apache-2.0
// The plain scalar evaluator of random kernels: one thread runs, one instruction at a time, until
// it has to meet others (a barrier, a warp-wide instruction) or ends. Nothing clever, on purpose.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/support/random/random_kernel.h"
#include "tests/support/random/random_program.h"

namespace sluice::random_kernels {
namespace {

// Where the evaluator's buffers lie; any bases that tell them apart.
constexpr uint64_t kInputBase = 1ull << 40, kOutputBase = 2ull << 40, kAccumulatorBase = 3ull << 40,
                   kSharedBase = 5ull << 40, kLocalBase = 6ull << 40;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "random kernel evaluator: %s\n", what);
  std::abort();
}

struct Registers {
  uint64_t value[kClassCount][kRegistersPerClass] = {};
};

struct Thread {
  uint32_t pc = 0;
  bool done = false;
  bool waiting = false;  // at the instruction `pc`, for others
  Registers registers;
  std::vector<uint8_t> local;
  uint32_t number = 0;  // in the block
};

class Evaluator {
 public:
  Evaluator(const RandomKernel& kernel, RandomKernelResult& result)
      : kernel_(kernel), program_(*kernel.program), result_(result) {
    index_labels(program_.code);
    for (const RandomFunction& f : program_.functions) index_labels(f.code);
  }

  void run_block(uint32_t block) {
    block_ = block;
    shared_.assign(program_.shared_bytes, 0);
    threads_.assign(kernel_.threads_per_block(), {});
    for (uint32_t t = 0; t < threads_.size(); ++t) {
      threads_[t].number = t;
      threads_[t].local.assign(program_.local_bytes, 0);
    }
    for (;;) {
      for (Thread& t : threads_)
        while (!t.done && !t.waiting) step(t);
      bool all_done = true;
      for (const Thread& t : threads_) all_done = all_done && t.done;
      if (all_done) return;
      if (!meet_in_warps() && !meet_in_groups() && !meet_in_block()) fail("threads wait for ever");
    }
  }

 private:
  void index_labels(const std::vector<Ins>& code) {
    for (uint32_t k = 0; k < code.size(); ++k) {
      if (code[k].code != Code::kLabel) continue;
      if (labels_.size() <= code[k].sub) labels_.resize(code[k].sub + 1);
      labels_[code[k].sub] = k;
    }
  }

  static uint64_t get(const Registers& r, const Operand& o) {
    if (o.cls == 0) return 0;
    if (o.immediate) return o.cls == 'r' ? static_cast<uint32_t>(o.value) : o.value;
    return r.value[class_index(o.cls)][o.reg];
  }
  static void set(Registers& r, const Operand& o, uint64_t value) {
    if (o.cls == 'r' || o.cls == 'f') value = static_cast<uint32_t>(value);
    if (o.cls == 'h') value = static_cast<uint16_t>(value);
    if (o.cls == 'p') value &= 1;
    r.value[class_index(o.cls)][o.reg] = value;
  }

  uint8_t* memory(Thread& t, MemorySpace space, uint64_t address, uint32_t bytes, bool write) {
    std::vector<uint8_t>* to = nullptr;
    if (space == MemorySpace::kShared) {
      to = &shared_;
    } else if (space == MemorySpace::kLocal) {
      to = &t.local;
    } else {
      const uint64_t base = address & ~((1ull << 40) - 1);
      address -= base;
      if (base == kOutputBase) to = &result_.output;
      if (base == kAccumulatorBase) to = &result_.accumulators;
      if (base == kSharedBase) to = &shared_;
      if (base == kLocalBase) to = &t.local;
      if (base == kInputBase) {
        if (write || address + bytes > kernel_.input.size()) fail("bad access to the input");
        return const_cast<uint8_t*>(&kernel_.input[address]);
      }
    }
    if (to == nullptr || address + bytes > to->size() || address % bytes != 0)
      fail("access outside its buffer");
    return &(*to)[address];
  }

  void access(Thread& t, const Ins& ins) {
    const uint64_t address = get(t.registers, ins.a) + static_cast<uint64_t>(ins.imm);
    for (size_t k = 0; k < ins.vector.size(); ++k) {
      const bool load = ins.code == Code::kLoad;
      uint8_t* p = memory(t, ins.space, address + k * ins.bytes, ins.bytes, !load);
      uint64_t value = 0;
      if (load) {
        std::memcpy(&value, p, ins.bytes);
        if (ins.is_signed && ins.bytes < 8) {
          const uint32_t unused = 64 - ins.bytes * 8u;
          value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
        }
        set(t.registers, ins.vector[k], value);
      } else {
        value = get(t.registers, ins.vector[k]);
        std::memcpy(p, &value, ins.bytes);
      }
    }
  }

  // Of functions, which never wait: registers only. `exits`: it ended the thread.
  uint64_t call(uint32_t function, uint64_t a, uint64_t b, bool& exits) {
    const std::vector<Ins>& code = program_.functions[function].code;
    Registers r;
    r.value[0][0] = a;
    r.value[0][1] = b;
    for (uint32_t pc = 0; pc < code.size(); ++pc) {
      const Ins& ins = code[pc];
      if (ins.guard.cls != 0 && (get(r, ins.guard) != 0) == ins.guard_not) continue;
      if (ins.code == Code::kExit) exits = true;
      if (ins.code == Code::kBranch)
        pc = labels_[ins.sub];
      else if (ins.code == Code::kCall)
        set(r, ins.d, call(ins.sub, get(r, ins.a), get(r, ins.b), exits));
      else if (ins.code == Code::kOp)
        set(r, ins.d, op_rows()[ins.sub].evaluate(get(r, ins.a), get(r, ins.b), get(r, ins.c)));
      else if (ins.code != Code::kLabel && !exits)
        fail("instruction that functions do not have");
      if (exits) return 0;
    }
    return r.value[0][2];
  }

  uint64_t special(const Thread& t, uint32_t which) const {
    const uint32_t* const block = kernel_.block;
    const uint32_t* const grid = kernel_.grid;
    switch (which) {
      case 0:
        return t.number % block[0];
      case 1:
        return t.number / block[0] % block[1];
      case 2:
        return t.number / block[0] / block[1];
      case 6:
        return block_ % grid[0];
      case 7:
        return block_ / grid[0] % grid[1];
      case 8:
        return block_ / grid[0] / grid[1];
      case 12:
        return t.number % 32;
      default:
        return which < 6 ? block[which - 3] : grid[which - 9];
    }
  }

  void step(Thread& t) {
    const Ins& ins = program_.code[t.pc];
    Registers& r = t.registers;
    if (ins.guard.cls != 0 && (get(r, ins.guard) != 0) == ins.guard_not) {
      ++t.pc;
      return;
    }
    switch (ins.code) {
      case Code::kOp:
        set(r, ins.d, op_rows()[ins.sub].evaluate(get(r, ins.a), get(r, ins.b), get(r, ins.c)));
        break;
      case Code::kSpecial:
        set(r, ins.d, special(t, ins.sub));
        break;
      case Code::kParam: {
        uint32_t big = 0;
        if (ins.sub == 4) std::memcpy(&big, &kernel_.big[static_cast<size_t>(ins.imm)], 4);
        const uint64_t values[] = {kInputBase, kOutputBase, kAccumulatorBase, kernel_.scalar, big};
        set(r, ins.d, values[ins.sub]);
        break;
      }
      case Code::kAddress: {
        const uint64_t values[] = {0, 0, kSharedBase, kLocalBase};
        set(r, ins.d, values[ins.sub]);
        break;
      }
      case Code::kFunctionAddress:
        set(r, ins.d, ins.sub);
        break;
      case Code::kLabel:
        break;
      case Code::kBranch:
        t.pc = labels_[ins.sub];
        return;
      case Code::kSwitch: {
        const uint64_t index = get(r, ins.a);
        if (index >= ins.labels.size()) fail("switch out of range");
        t.pc = labels_[ins.labels[index]];
        return;
      }
      case Code::kLoad:
      case Code::kStore:
        access(t, ins);
        break;
      case Code::kAtomic: {
        const AtomicRow& row = atomic_rows()[ins.sub];
        uint8_t* p =
            memory(t, ins.space, get(r, ins.a) + static_cast<uint64_t>(ins.imm), row.bytes, true);
        uint64_t value = 0;
        std::memcpy(&value, p, row.bytes);
        value = row.combine(value, get(r, ins.b));
        std::memcpy(p, &value, row.bytes);
        break;
      }
      case Code::kCall: {
        const uint64_t function = ins.c.cls != 0 ? get(r, ins.c) : ins.sub;
        bool exits = false;
        const uint64_t got =
            call(static_cast<uint32_t>(function), get(r, ins.a), get(r, ins.b), exits);
        if (exits) {
          t.done = true;
          return;
        }
        set(r, ins.d, got);
        break;
      }
      case Code::kBarrier:
        if (ins.sub == 2) {
          ++arrived_[ins.b.value];
          break;
        }
        t.waiting = true;
        return;
      case Code::kExit:
        t.done = true;
        return;
      default:
        t.waiting = true;  // it goes on when the others are here
        return;
    }
    ++t.pc;
  }

  // Executes every warp-wide instruction whose lanes are all there; false: none.
  bool meet_in_warps() {
    bool any = false;
    for (Thread& t : threads_) {
      if (!t.waiting) continue;
      const Ins& ins = program_.code[t.pc];
      if (ins.mask.cls == 0) continue;
      const uint32_t mask = static_cast<uint32_t>(get(t.registers, ins.mask));
      const uint32_t first = t.number & ~31u;
      Thread* lanes[32] = {};
      bool complete = true;
      for (uint32_t lane = 0; lane < 32 && complete; ++lane) {
        if (((mask >> lane) & 1) == 0) continue;
        if (first + lane >= threads_.size()) fail("a mask names a lane that is none");
        Thread& other = threads_[first + lane];
        if (other.done) continue;  // the hardware leaves out those that have exited
        complete = other.waiting && other.pc == t.pc && get(other.registers, ins.mask) == mask;
        lanes[lane] = &other;
      }
      if (!complete) continue;
      if (lanes[t.number & 31] != &t) fail("a lane is not in its own mask");
      collective(ins, lanes);
      for (Thread* lane : lanes)
        if (lane != nullptr) {
          lane->waiting = false;
          ++lane->pc;
        }
      any = true;
    }
    return any;
  }

  void collective(const Ins& ins, Thread* const (&lanes)[32]) {
    uint64_t a[32] = {};
    uint32_t mask = 0, yes = 0;
    for (uint32_t k = 0; k < 32; ++k) {
      if (lanes[k] == nullptr) continue;
      a[k] = get(lanes[k]->registers, ins.a);
      mask |= 1u << k;
      yes |= static_cast<uint32_t>(a[k] & 1) << k;
    }
    bool first = true, same = true;
    uint32_t reduced = 0, leader = 0;
    for (uint32_t k = 0; k < 32; ++k) {
      if (lanes[k] == nullptr) continue;
      const uint32_t v = static_cast<uint32_t>(a[k]);
      if (first) {
        reduced = v;
        leader = k;
        first = false;
        continue;
      }
      same = same && a[k] == a[leader];
      const int32_t x = static_cast<int32_t>(reduced), y = static_cast<int32_t>(v);
      const uint32_t results[] = {reduced + v,
                                  reduced < v ? reduced : v,
                                  reduced > v ? reduced : v,
                                  x < y ? reduced : v,
                                  x > y ? reduced : v,
                                  reduced & v,
                                  reduced | v,
                                  reduced ^ v};
      if (ins.code == Code::kReduce) reduced = results[ins.sub];
    }
    for (uint32_t k = 0; k < 32; ++k) {
      if (lanes[k] == nullptr) continue;
      Registers& r = lanes[k]->registers;
      if (ins.code == Code::kVote) {
        const uint64_t values[] = {yes == mask, yes != 0, yes == mask || yes == 0, yes};
        set(r, ins.d, values[ins.sub]);
      } else if (ins.code == Code::kReduce) {
        set(r, ins.d, reduced);
      } else if (ins.code == Code::kMatch) {
        uint32_t equal = 0;
        for (uint32_t j = 0; j < 32; ++j)
          if (lanes[j] != nullptr && a[j] == a[k]) equal |= 1u << j;
        set(r, ins.d, ins.sub == 0 ? equal : same ? mask : 0);
        if (ins.d2.cls != 0) set(r, ins.d2, same);
      } else if (ins.code == Code::kShuffle) {
        // PTX ISA, shfl.sync, the algorithm given there.
        const uint32_t b = static_cast<uint32_t>(get(r, ins.b)) & 31,
                       c = static_cast<uint32_t>(get(r, ins.c)), clamp = c & 31,
                       segment = (c >> 8) & 31, max_lane = (k & segment) | (clamp & ~segment),
                       min_lane = k & segment;
        int32_t j = 0;
        bool inside = false;
        switch (ins.sub) {
          case 0:
            j = static_cast<int32_t>(k) - static_cast<int32_t>(b);
            inside = j >= static_cast<int32_t>(max_lane);
            break;
          case 1:
            j = static_cast<int32_t>(k + b);
            inside = j <= static_cast<int32_t>(max_lane);
            break;
          case 2:
            j = static_cast<int32_t>(k ^ b);
            inside = j <= static_cast<int32_t>(max_lane);
            break;
          default:
            j = static_cast<int32_t>(min_lane | (b & ~segment));
            inside = j <= static_cast<int32_t>(max_lane);
        }
        set(r, ins.d, a[inside ? j & 31 : static_cast<int32_t>(k)]);
        if (ins.d2.cls != 0) set(r, ins.d2, inside);
      }
    }
  }

  // The threads at the barriers with a number and a count of their own.
  bool meet_in_groups() {
    bool any = false;
    for (uint32_t number = 0; number < std::size(arrived_); ++number) {
      uint64_t here = arrived_[number], wanted = 0;
      const auto stands = [&](const Thread& t) {
        const Ins& ins = program_.code[t.pc];
        return t.waiting && ins.code == Code::kBarrier && ins.sub == 1 && ins.b.value == number;
      };
      for (const Thread& t : threads_) {
        if (!stands(t)) continue;
        ++here;
        wanted = program_.code[t.pc].c.value;
      }
      if (wanted == 0 || here < wanted) continue;
      if (here > wanted) fail("more threads at a barrier than it has");
      for (Thread& t : threads_) {
        if (!stands(t)) continue;
        t.waiting = false;
        ++t.pc;
      }
      arrived_[number] = 0;
      any = true;
    }
    return any;
  }

  // All threads that are left stand at one barrier.
  bool meet_in_block() {
    const Ins* at = nullptr;
    uint64_t population = 0;
    bool all = true, any = false;
    for (const Thread& t : threads_) {
      if (t.done) continue;
      const Ins& ins = program_.code[t.pc];
      if (at != nullptr && at != &ins) return false;
      at = &ins;
      if (ins.code != Code::kBarrierReduce && (ins.code != Code::kBarrier || ins.sub != 0))
        return false;
      const bool yes = ins.a.cls != 0 && get(t.registers, ins.a) != 0;
      population += yes;
      all = all && yes;
      any = any || yes;
    }
    for (Thread& t : threads_) {
      if (t.done) continue;
      if (at->code == Code::kBarrierReduce) {
        const uint64_t values[] = {population, all, any};
        set(t.registers, at->d, values[at->sub]);
      }
      t.waiting = false;
      ++t.pc;
    }
    return true;
  }

  const RandomKernel& kernel_;
  const RandomProgram& program_;
  RandomKernelResult& result_;
  std::vector<uint32_t> labels_;
  std::vector<uint8_t> shared_;
  std::vector<Thread> threads_;
  uint64_t arrived_[16] = {};  // at each numbered barrier, without waiting
  uint32_t block_ = 0;
};

}  // namespace

RandomKernelResult evaluate(const RandomKernel& kernel) {
  RandomKernelResult result{kernel.output, kernel.accumulators};
  Evaluator evaluator(kernel, result);
  for (uint32_t block = 0; block < kernel.blocks(); ++block) evaluator.run_block(block);
  return result;
}

}  // namespace sluice::random_kernels
