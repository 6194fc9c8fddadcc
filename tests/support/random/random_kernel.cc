// SPDX-License-Identifier: Apache-2.0
// The frame of a random kernel: shape, first values, and what each thread leaves behind.
#include "tests/support/random/random_kernel.h"

#include <algorithm>
#include <cstring>

#include "tests/support/random/random_generator.h"

namespace sluice::random_kernels {

void RandomGenerator::choose_shape(RandomKernel& kernel) {
  static constexpr uint32_t kBlocks[][3] = {{32, 1, 1}, {64, 1, 1}, {1, 1, 1},  {7, 1, 1},
                                            {33, 1, 1}, {48, 1, 1}, {96, 1, 1}, {100, 1, 1},
                                            {8, 4, 1},  {16, 3, 1}, {4, 4, 4},  {128, 1, 1},
                                            {5, 3, 7},  {64, 2, 1}, {32, 8, 1}};
  static constexpr uint32_t kGrids[][3] = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {2, 2, 1},
                                           {1, 3, 1}, {2, 1, 2}, {5, 1, 1}, {2, 2, 2}};
  const auto& block = kBlocks[below(std::size(kBlocks))];
  const auto& grid = kGrids[below(std::size(kGrids))];
  for (int d = 0; d < 3; ++d) {
    kernel.block[d] = options_.block[0] != 0 ? std::max(options_.block[d], 1u) : block[d];
    kernel.grid[d] = options_.grid[0] != 0 ? std::max(options_.grid[d], 1u) : grid[d];
  }
  threads_ = kernel.threads_per_block();
}

void RandomGenerator::make_functions() {
  if (!options_.calls) return;
  in_function_ = true;
  for (uint32_t k = 0, count = 1 + below(3); k < count; ++k) {
    RandomFunction function;
    code_ = &function.code;
    for (uint32_t r = 2; r < 8; ++r)
      op("mov.u32", Operand::of('r', r),
         chance(50) ? random_immediate('r') : Operand::of('r', below(2)));
    arithmetic(2 + below(4));
    const Operand i = Operand::of('r', 8), n = Operand::of('r', 9), p = Operand::of('p', 0);
    if (chance(50)) {  // a loop, as often as an operand says
      const uint16_t head = new_label();
      op("and.b32", n, Operand::of('r', below(2)), Operand::imm('r', 3));
      op("mov.u32", i, Operand::imm('r', 0));
      place(head);
      arithmetic(1 + below(3));
      op("add.u32", i, i, Operand::imm('r', 1));
      op("setp.le.u32", p, i, n);
      branch(head, p);
    }
    if (chance(50)) {
      const uint16_t past = new_label();
      op("setp.lt.s32", p, Operand::of('r', 0), Operand::of('r', 1 + below(7)));
      branch(past, p);
      arithmetic(1 + below(3));
      if (!program_.functions.empty() && chance(40)) {
        Ins& ins = add(Code::kCall);
        ins.sub = static_cast<uint16_t>(below(static_cast<uint32_t>(program_.functions.size())));
        ins.a = Operand::of('r', below(8));
        ins.b = Operand::of('r', below(8));
        ins.d = Operand::of('r', 2 + below(6));
      }
      place(past);
    }
    if (functions_exit_ && chance(50)) {
      op("setp.eq.u32", p, Operand::of('r', 0), Operand::of('r', 1));
      add(Code::kExit).sub = 1;
      guard_last(p, false);
    }
    program_.functions.push_back(std::move(function));
  }
  in_function_ = false;
}

void RandomGenerator::prologue(const RandomKernel& kernel) {
  for (uint32_t k = 0; k < kClassCount; ++k) next_[k] = kUserRegisters[k];
  const auto special = [this](uint16_t index) {
    const Operand d = fresh('r');
    Ins& ins = add(Code::kSpecial);
    ins.sub = index;
    ins.d = d;
    return d;
  };
  const auto parameter = [this](char cls, uint16_t index) {
    const Operand d = fresh(cls);
    Ins& ins = add(Code::kParam);
    ins.sub = index;
    ins.d = d;
    return d;
  };
  // x + nx * (y + ny * z)
  const auto linear = [this, &special](uint16_t first, uint16_t counts) {
    const Operand x = special(first), y = special(first + 1), z = special(first + 2),
                  nx = special(counts), ny = special(counts + 1), d = fresh('r');
    op("mad.lo.u32", d, ny, z, y);
    op("mad.lo.u32", d, d, nx, x);
    return d;
  };
  input_ = parameter('q', 0);
  output_ = parameter('q', 1);
  accumulators_ = parameter('q', 2);
  scalar_ = parameter('r', 3);
  tid_ = linear(0, 3);
  block_ = linear(6, 9);
  lane_ = fresh('r');
  op("and.b32", lane_, tid_, Operand::imm('r', 31));

  const Operand global = fresh('r'), wide = fresh('q');
  op("mad.lo.u32", global, block_, Operand::imm('r', threads_), tid_);
  op("mul.wide.u32", wide, global, Operand::imm('r', kRecordBytes));
  op("add.s64", output_, output_, wide);

  // The lanes that this warp has: (1 << min(threads - first, 32)) - 1.
  mask_ = fresh('r');
  const Operand t = fresh('r');
  op("and.b32", t, tid_, Operand::imm('r', 0xffffffe0));
  op("sub.u32", t, Operand::imm('r', threads_), t);
  op("shl.b32", mask_, Operand::imm('r', 1), t);
  op("sub.u32", mask_, mask_, Operand::imm('r', 1));

  // First values, from the input.
  const Operand address = fresh('q');
  const auto load = [this, &address](Operand d, uint8_t bytes, uint32_t at) {
    Ins& ins = add(Code::kLoad);
    ins.a = address;
    ins.bytes = bytes;
    ins.imm = at;
    ins.vector = {d};
  };
  op("mul.lo.u32", t, global, Operand::imm('r', 104));
  address_in(address, input_, t, 0xf00 - 8);
  uint32_t at = 0;
  for (uint32_t k = 0; k < kUserRegisters[1]; ++k, at += 8) load(Operand::of('q', k), 8, at);
  for (uint32_t k = 0; k < kUserRegisters[0]; ++k, at += 4) load(Operand::of('r', k), 4, at);
  for (uint32_t k = 0; k < kUserRegisters[2]; ++k, at += 2) load(Operand::of('h', k), 2, at);
  at = (at + 3) & ~3u;
  for (uint32_t k = 0; k < kUserRegisters[3]; ++k, at += 4) load(Operand::of('f', k), 4, at);
  for (uint32_t k = 0; k < kUserRegisters[4]; ++k)
    op("cvt.rn.f64.s32", Operand::of('d', k), Operand::of('r', k));
  for (uint32_t k = 0; k < kUserRegisters[5]; ++k)
    op("setp.lt.s32", Operand::of('p', k), Operand::of('r', k), Operand::of('r', k + 1));
  // Registers that differ little are more interesting than random ones.
  op("mov.u32", Operand::of('r', 0), tid_);
  op("and.b32", Operand::of('r', 1), Operand::of('r', 1), Operand::imm('r', 15));
  op("cvt.rn.f32.u32", Operand::of('f', 0), Operand::of('r', 1));
  op("cvt.rn.f32.s32", Operand::of('f', 1), Operand::of('r', 2));

  if (options_.local_memory) {
    program_.local_bytes = kLocalArrayBytes;
    local_ = fresh('q');
    Ins& ins = add(Code::kAddress);
    ins.sub = 1;
    ins.d = local_;
    for (uint32_t k = 0; k < kLocalArrayBytes; k += 16) {
      Ins& store = add(Code::kStore);
      store.space = MemorySpace::kLocal;
      store.a = local_;
      store.imm = k;
      for (uint32_t r = 0; r < 4; ++r) store.vector.push_back(Operand::of('r', (k / 4 + r) % 12));
    }
  }
  if (!options_.barriers) return;
  program_.shared_bytes = threads_ * kSlotBytesOfThread + kAccumulatorBytes;
  program_.dynamic_shared = chance(50);
  shared_ = fresh('r');
  slot_ = fresh('r');
  shared_accumulators_ = fresh('r');
  Ins& ins = add(Code::kAddress);
  ins.sub = 0;
  ins.d = shared_;
  op("mad.lo.u32", slot_, tid_, Operand::imm('r', kSlotBytesOfThread), shared_);
  op("add.u32", shared_accumulators_, shared_,
     Operand::imm('r', kernel.threads_per_block() * kSlotBytesOfThread));
  Ins& store = add(Code::kStore);
  store.space = MemorySpace::kShared;
  store.a = slot_;
  for (uint32_t r = 0; r < 4; ++r) store.vector.push_back(Operand::of('r', r + 4));
  const Operand p = fresh('p');
  for (uint32_t k = 0; k < kAccumulatorBytes / 8; ++k) {
    op("setp.eq.u32", p, tid_, Operand::imm('r', k % threads_));
    Ins& zero = add(Code::kStore);
    zero.space = MemorySpace::kShared;
    zero.a = shared_accumulators_;
    zero.imm = 8 * k;
    zero.bytes = 8;
    zero.vector = {Operand::imm('q', 0)};
    guard_last(p, false);
  }
  add(Code::kBarrier);
}

void RandomGenerator::store_registers() {
  const auto store = [this](uint32_t at, uint8_t bytes, std::vector<Operand> what) {
    Ins& ins = add(Code::kStore);
    ins.a = output_;
    ins.imm = at;
    ins.bytes = bytes;
    ins.vector = std::move(what);
  };
  uint32_t at = 0;
  for (uint32_t k = 0; k < 12; k += 4, at += 16)
    store(at, 4,
          {Operand::of('r', k), Operand::of('r', k + 1), Operand::of('r', k + 2),
           Operand::of('r', k + 3)});
  for (uint32_t k = 0; k < 6; k += 2, at += 16)
    store(at, 8, {Operand::of('q', k), Operand::of('q', k + 1)});
  for (uint32_t k = 0; k < 6; ++k, at += 2) store(at, 2, {Operand::of('h', k)});
  at += 4;
  for (uint32_t k = 0; k < 6; ++k, at += 4) store(at, 4, {Operand::of('f', k)});
  for (uint32_t k = 0; k < 4; ++k, at += 8) store(at, 8, {Operand::of('d', k)});
  const auto before = next_;
  const Operand all = fresh('r'), one = fresh('r');
  op("mov.u32", all, Operand::imm('r', 0));
  for (uint32_t k = 0; k < 6; ++k) {
    op("selp.b32", one, Operand::imm('r', 1u << k), Operand::imm('r', 0), Operand::of('p', k));
    op("or.b32", all, all, one);
  }
  store(at, 4, {all});
  at = 176;
  if (options_.local_memory)
    for (uint32_t k = 0; k < kLocalArrayBytes; k += 8) {
      const Operand q = fresh('q');
      Ins& ins = add(Code::kLoad);
      ins.space = MemorySpace::kLocal;
      ins.a = local_;
      ins.imm = k;
      ins.bytes = 8;
      ins.vector = {q};
      store(at + k, 8, {q});
    }
  next_ = before;
}

void RandomGenerator::epilogue(const RandomKernel&) {
  if (options_.barriers) {
    add(Code::kBarrier);
    const Operand to = fresh('q'), value = fresh('q');
    op("mad.wide.u32", to, block_, Operand::imm('r', kAccumulatorBytes), accumulators_);
    const Operand p = fresh('p');
    for (uint32_t k = 0; k < kAccumulatorBytes / 8; ++k) {
      op("setp.eq.u32", p, tid_, Operand::imm('r', k % threads_));
      Ins& load = add(Code::kLoad);
      load.space = MemorySpace::kShared;
      load.a = shared_accumulators_;
      load.imm = 8 * k;
      load.bytes = 8;
      load.vector = {value};
      guard_last(p, false);
      Ins& store = add(Code::kStore);
      store.a = to;
      store.imm = kAccumulatorBytes + 8 * k;
      store.bytes = 8;
      store.vector = {value};
      guard_last(p, false);
    }
  }
  store_registers();
  add(Code::kExit);
}

RandomKernel RandomGenerator::run() {
  RandomKernel kernel;
  choose_shape(kernel);
  // Groups of warps count on all their threads.
  groups_ = options_.only_operation < 0 && options_.barriers && threads_ % 64 == 0 && chance(25);
  const bool exits =
      options_.early_exit && options_.divergence && options_.only_operation < 0 && !groups_;
  masks_name_exited_ = exits && chance(60);
  functions_exit_ = masks_name_exited_ && options_.calls && chance(15);
  exited_ = masks_stale_ = functions_exit_;
  if (options_.only_operation < 0 && chance(15)) program_.big_parameter = 4 * (1 + below(1000));
  make_functions();
  code_ = &program_.code;
  prologue(kernel);
  budget_ = static_cast<int>(options_.statements);
  Region top;
  top.mask = static_cast<int>(mask_.reg);
  while (budget_ > 0) statements(top, 1);
  epilogue(kernel);
  kernel.input.resize(kInputBytes);
  for (uint8_t& byte : kernel.input) byte = static_cast<uint8_t>(random_());
  // Many small whole numbers and ordinary floats among the random bits.
  for (uint32_t at = 0; at < kInputBytes; at += 4) {
    const uint32_t kind = below(4);
    uint32_t value = below(100);
    if (kind == 0) {
      const float f = static_cast<float>(static_cast<int32_t>(below(20000)) - 10000) / 64;
      std::memcpy(&value, &f, 4);
    }
    if (kind < 2) std::memcpy(&kernel.input[at], &value, 4);
  }
  kernel.scalar = static_cast<uint32_t>(random_());
  kernel.big.resize(program_.big_parameter);
  for (uint8_t& byte : kernel.big) byte = static_cast<uint8_t>(random_());
  kernel.output.resize(size_t{kernel.blocks()} * threads_ * kRecordBytes);
  kernel.accumulators.resize(size_t{kAccumulatorBytes} * (1 + kernel.blocks()));
  kernel.dynamic_shared_bytes = program_.dynamic_shared ? program_.shared_bytes : 0;
  kernel.ptx = print_program(program_);
  kernel.program = std::make_shared<const RandomProgram>(std::move(program_));
  return kernel;
}

RandomKernel make_random_kernel(const RandomKernelOptions& options) {
  return RandomGenerator(options).run();
}

std::vector<std::byte> RandomKernel::params(uint64_t input_address, uint64_t output_address,
                                            uint64_t accumulators_address) const {
  std::vector<std::byte> bytes(28 + big.size());
  std::memcpy(&bytes[0], &input_address, 8);
  std::memcpy(&bytes[8], &output_address, 8);
  std::memcpy(&bytes[16], &accumulators_address, 8);
  std::memcpy(&bytes[24], &scalar, 4);
  if (!big.empty()) std::memcpy(&bytes[28], big.data(), big.size());
  return bytes;
}

std::string describe_difference(const RandomKernel& kernel, const RandomKernelResult& expected,
                                const RandomKernelResult& got) {
  const auto first = [](const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
    if (a.size() != b.size()) return std::min(a.size(), b.size());
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  };
  const auto word = [](const std::vector<uint8_t>& bytes, size_t at) {
    uint32_t value = 0;
    if (at + 4 <= bytes.size()) std::memcpy(&value, &bytes[at], 4);
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", value);
    return std::string(text);
  };
  if (expected.output != got.output) {
    const size_t at = first(expected.output, got.output) & ~size_t{3};
    const size_t record = at / kRecordBytes, inside = at % kRecordBytes;
    static constexpr struct {
      size_t begin;
      const char* name;
      size_t bytes;
    } kParts[] = {{0, "%r", 4},   {48, "%q", 8},  {96, "%h", 2},     {112, "%f", 4},
                  {136, "%d", 8}, {168, "%p", 4}, {176, "local", 4}, {240, "scratch", 4}};
    std::string place;
    for (const auto& part : kParts)
      if (inside >= part.begin)
        place = part.name + std::to_string((inside - part.begin) / part.bytes);
    return "output of block " + std::to_string(record / kernel.threads_per_block()) + ", thread " +
           std::to_string(record % kernel.threads_per_block()) + ", " + place + ": expected " +
           word(expected.output, at) + ", got " + word(got.output, at);
  }
  if (expected.accumulators != got.accumulators) {
    const size_t at = first(expected.accumulators, got.accumulators) & ~size_t{3};
    return "accumulator " + std::to_string(at / 8) + ": expected " +
           word(expected.accumulators, at) + ", got " + word(got.accumulators, at);
  }
  return {};
}

}  // namespace sluice::random_kernels
