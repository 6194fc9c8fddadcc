// SPDX-License-Identifier: Apache-2.0
// A workload: one kernel of the suite with its input data, its launch parameters and what it must
// compute. The runner (runner.h) does the rest: buffers, streams, queueing, reading back, verdicts.
//
// A workload is pure (no driver calls, no I/O), so that tests drive it without a GPU. One thread.
// It owns its host-side inputs; the spans that it hands out live as long as it does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/suite/workloads/options.h"

namespace sluice::suite {

// What outputs hold before a checked launch, as 32-bit words.
inline constexpr std::uint32_t kPoison = 0xabadbabeu;

// Up to this many bytes of output, workloads whose results take long to compute keep them, for
// kKeptVariants different launches, from before the first launch: a check must not take so long
// that the queue runs dry meanwhile, and guests may be much slower than the GPU.
inline constexpr std::size_t kMaxKeptBytes = 4 << 20;
inline constexpr std::uint64_t kKeptVariants = 3;

// Grid and block of a launch; no dynamic shared memory in this suite.
struct LaunchShape {
  std::uint32_t grid_x = 1, grid_y = 1;
  std::uint32_t block_x = 1, block_y = 1;
};

// Kernel arguments in order, each copied by value; pointers() is what cuLaunchKernel takes.
class Arguments {
 public:
  template <class T>
  void add(T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
    std::memcpy(&values_.at(count_), &value, sizeof(T));
    pointers_[count_] = &values_[count_];
    sizes_[count_] = sizeof(T);
    ++count_;
  }
  Arguments() = default;
  Arguments(const Arguments&) = delete;  // it points into itself
  Arguments& operator=(const Arguments&) = delete;
  void** pointers() { return pointers_.data(); }
  std::size_t count() const { return count_; }
  // Of argument `index`: its bytes, and its value in the low ones.
  std::size_t size(std::size_t index) const { return sizes_.at(index); }
  std::uint64_t value(std::size_t index) const { return values_.at(index); }

 private:
  std::array<std::uint64_t, 12> values_{};
  std::array<void*, 12> pointers_{};
  std::array<std::size_t, 12> sizes_{};
  std::size_t count_ = 0;
};

// What one comparison found.
struct Verdict {
  std::uint64_t wrong_elements = 0;
  std::string first;  // of the first wrong ones: index, got, want; for a person
};

enum class Element : std::uint8_t { kF32, kF64, kU32, kU64 };

class Workload {
 public:
  virtual ~Workload() = default;
  Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  virtual const char* name() const = 0;  // of the program and of the kernel's entry
  virtual const char* ptx() const = 0;
  virtual std::uint64_t size() const = 0;  // as --size would say it
  virtual LaunchShape shape() const = 0;
  // Device inputs, in the order that arguments() gets their addresses. Input 0 is what a chain
  // overwrites: there, each unit has a copy of its own.
  virtual std::vector<std::span<const std::byte>> inputs() const = 0;
  virtual std::size_t output_bytes() const = 0;
  // How many bytes a chain copies from the start of the output to the start of input 0.
  virtual std::size_t chain_bytes() const = 0;
  // Whether launches add to the output, so that it tells of all launches since it was poisoned.
  virtual bool accumulates() const { return false; }
  // Arguments of launch number `launch` (counted over the whole run; tells launches apart).
  virtual void arguments(Arguments& arguments, std::uint64_t out,
                         std::span<const std::uint64_t> inputs, std::uint64_t launch) const = 0;
  // Brings `output` from what it held before to what it holds after `chain` launches from number
  // `first` on, each of which but the first finds the one before it copied into input 0.
  virtual void advance(std::span<std::byte> output, std::uint64_t first, std::uint64_t chain) = 0;
  // Bit by bit over output_bytes(), unless a workload knows only a part of what it expects.
  virtual Verdict compare(std::span<const std::byte> want, std::span<const std::byte> got) const;

 protected:
  virtual Element element() const = 0;  // for messages
  // Compares element `index` and notes a difference.
  static void compare_element(Element element, std::span<const std::byte> want,
                              std::span<const std::byte> got, std::uint64_t index,
                              Verdict& verdict);
};

// Blocks of `per_block` that cover `n`; throws UsageError beyond what a grid can hold in total
// (2^31 - 1 blocks, which is also the limit of tasks in abi/preempt.h).
std::uint32_t blocks_for(std::uint64_t n, std::uint64_t per_block);

// View of an object array as bytes and back; `bytes` must be aligned for T.
template <class T>
std::span<T> as_elements(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace sluice::suite
