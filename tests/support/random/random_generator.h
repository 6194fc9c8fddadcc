// SPDX-License-Identifier: Apache-2.0
// The generator of random kernels. Internal to tests/support/random/; one use, one thread.
#pragma once

#include <random>
#include <vector>

#include "tests/support/random/random_kernel.h"
#include "tests/support/random/random_program.h"

namespace sluice::random_kernels {

class RandomGenerator {
 public:
  explicit RandomGenerator(const RandomKernelOptions& options);
  RandomKernel run();

 private:
  // What may stand at the place that is being filled.
  struct Region {
    bool uniform = true;   // the whole block comes here, but for those that have exited
    bool in_loop = false;  // what stands here may run again
    bool exits = true;     // threads may exit here
    int mask = -1;  // r register with the lanes of this warp that come, and perhaps some that
                    // have exited (masks_name_exited_); -1: not known
    uint32_t depth = 0;
  };

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  uint64_t bits() { return random_() << 32 ^ random_(); }

  void choose_shape(RandomKernel& kernel);
  void prologue(const RandomKernel& kernel);
  void epilogue(const RandomKernel& kernel);
  void store_registers();
  void make_functions();

  void statements(Region region, uint32_t count);
  void statement(Region& region);
  void arithmetic(uint32_t count);
  void if_statement(const Region& region);
  void loop(const Region& region);
  void plain_loop(const Region& region);
  void masked_loop(const Region& region);
  void switch_statement(const Region& region);
  void local_access();
  void slot_access();
  void input_access();
  void scratch_store();
  void exchange();
  void barrier_reduce();
  void guarded_barrier();
  void warp_groups();
  void big_parameter();
  void collective(const Region& region);
  void shuffle(const Region& region);
  void atomic();
  void call();
  void early_exit(Region& region);

  // Building blocks. A fresh register is one that statements chosen at random do not touch.
  Ins& add(Code code);
  Operand fresh(char cls);
  Operand user(char cls) { return Operand::of(cls, below(kUserRegisters[class_index(cls)])); }
  Operand any(char cls);  // a register, or for some an immediate
  Operand random_immediate(char cls);
  void op(const char* ptx, Operand d, Operand a, Operand b = {}, Operand c = {});
  uint16_t row_of(const char* ptx, char result, char first = 0) const;
  void random_op(bool guarded);
  uint16_t new_label() { return labels_++; }
  void place(uint16_t label);
  void branch(uint16_t label, Operand guard = {}, bool negate = false);
  Operand condition(const Region& region, bool& varies);
  Operand uniform_condition();
  bool knows_lanes(const Region& region) const {
    return options_.collectives && region.mask >= 0 && (!masks_stale_ || masks_name_exited_);
  }
  void guard_last(Operand predicate, bool negate);
  void address_in(Operand address, Operand base, Operand index, uint32_t mask);
  void access(MemorySpace space, Operand address, uint32_t room, bool load);

  const RandomKernelOptions& options_;
  std::mt19937_64 random_;
  std::vector<Ins>* code_ = nullptr;
  RandomProgram program_;
  uint32_t threads_ = 0;
  uint16_t labels_ = 0;
  std::array<uint32_t, kClassCount> next_{};
  bool in_function_ = false;
  bool exited_ = false;       // some threads may have gone: nobody counts on all of them
  bool masks_stale_ = false;  // lanes may have gone without being taken out of the masks
  // Masks may name lanes that have exited, as most programs do that call for "all" after an early
  // return; the hardware leaves those out.
  bool masks_name_exited_ = false;
  bool functions_exit_ = false;  // some functions end their thread
  bool groups_ = false;          // warps meet at barriers without the others
  int budget_ = 0;

  Operand tid_, scalar_, block_, mask_, lane_, slot_, shared_, local_, input_, output_,
      accumulators_, shared_accumulators_;
};

}  // namespace sluice::random_kernels
