// SPDX-License-Identifier: Apache-2.0
// How a benchmark writes itself down as a Case (catalog.h): inputs, outputs, launches with plain
// C++ arguments, and a reference that is computed when somebody checks.
//
// Pure; one thread. A benchmark's file needs nothing but this header, its PTX and its arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/suite/catalog/catalog.h"
#include "kernels/suite/workloads/reference.h"

namespace sluice::suite {

// A device pointer argument: `bytes` into a buffer.
struct Pointer {
  std::uint32_t buffer = 0;
  std::uint64_t bytes = 0;
};

// Why `got` is not `want`, or empty. Floating-point elements may differ by `tolerance` times the
// larger of 1 and the value wanted; 0 asks for the same bits, as for every other type.
template <class T>
std::string difference(const std::string& name, std::span<const T> got, std::span<const T> want,
                       double tolerance) {
  if (got.size() != want.size()) return name + ": other length than the reference";
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
    if constexpr (std::is_floating_point_v<T>) {
      const double bound = tolerance * std::max(1.0, std::abs(static_cast<double>(want[i])));
      if (std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])) <= bound) continue;
    }
    std::string message = name + "[" + std::to_string(i) + "]";
    if constexpr (std::is_arithmetic_v<T>)
      message += " is " + std::to_string(got[i]) + ", not " + std::to_string(want[i]);
    return message;
  }
  return {};
}

// Host to device, of a whole vector.
template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T>
std::vector<T> elements_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

class CaseBuilder {
 public:
  CaseBuilder(const char* name, const char* ptx) {
    case_.name = name;
    case_.ptx = ptx;
  }

  template <class T>
  Pointer input(const char* name, const std::vector<T>& values) {
    case_.buffers.push_back({name, bytes_of(values)});
    return {static_cast<std::uint32_t>(case_.buffers.size() - 1), 0};
  }
  // `count` elements that hold poison, so that one which nobody writes shows.
  template <class T>
  Pointer output(const char* name, std::size_t count) {
    std::vector<std::byte> poison(count * sizeof(T), std::byte{0xbe});
    case_.buffers.push_back({name, std::move(poison)});
    return {static_cast<std::uint32_t>(case_.buffers.size() - 1), 0};
  }
  template <class T>
  Pointer zeros(const char* name, std::size_t count) {
    return input(name, std::vector<T>(count));
  }
  void symbol(const char* name, std::vector<std::byte> bytes) {
    case_.steps.push_back(SetSymbol{name, 0, std::move(bytes)});
  }
  void copy(Pointer to, Pointer from, std::uint64_t bytes) {
    case_.steps.push_back(Copy{to.buffer, to.bytes, from.buffer, from.bytes, bytes});
  }
  void fill(Pointer to, std::uint8_t value, std::uint64_t bytes) {
    case_.steps.push_back(Fill{to.buffer, to.bytes, bytes, value});
  }

  // Arguments in the kernel's order and of exactly its types.
  template <class... Args>
  void launch(const char* kernel, Extent3 grid, Extent3 block, std::uint32_t dynamic_shared,
              const Args&... args) {
    Launch launch;
    launch.kernel = kernel;
    launch.grid = grid;
    launch.block = block;
    launch.dynamic_shared = dynamic_shared;
    (append(launch, args), ...);
    case_.steps.push_back(std::move(launch));
  }

  // What the buffer must hold at the end, computed when checked. `make` returns a vector<T>, which
  // may be shorter than the buffer. Several expectations are checked in order.
  template <class T>
  void expect(Pointer buffer, double tolerance, std::function<std::vector<T>()> make) {
    const std::string name = case_.buffers[buffer.buffer].name;
    checks_.push_back([=](const Contents& contents) {
      const std::vector<T> want = make();
      std::vector<T> got = elements_of<T>(contents.at(buffer.buffer));
      if (got.size() > want.size()) got.resize(want.size());
      return difference<T>(name, got, want, tolerance);
    });
  }
  void expect_that(std::function<std::string(const Contents&)> check) {
    checks_.push_back(std::move(check));
  }

  Case take() {
    case_.check = [checks = std::move(checks_)](const Contents& contents) {
      for (const auto& check : checks)
        if (std::string wrong = check(contents); !wrong.empty()) return wrong;
      return std::string();
    };
    return std::move(case_);
  }

 private:
  static std::byte* place(Launch& launch, std::size_t bytes, std::size_t align) {
    const std::size_t offset = (launch.params.size() + align - 1) / align * align;
    launch.params.resize(offset + bytes);
    launch.param_offsets.push_back(static_cast<std::uint32_t>(offset));
    return launch.params.data() + offset;
  }
  template <class T>
  static void append(Launch& launch, const T& value) {
    if constexpr (std::is_same_v<T, Pointer>) {
      place(launch, 8, 8);
      launch.pointers.push_back({launch.param_offsets.back(), value.buffer, value.bytes});
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      std::memcpy(place(launch, sizeof(T), alignof(T)), &value, sizeof(T));
    }
  }

  Case case_;
  std::vector<std::function<std::string(const Contents&)>> checks_;
};

// Values in [low, high).
inline std::vector<float> uniform_floats(std::size_t count, std::uint64_t seed, float low,
                                         float high) {
  Generator generator(seed);
  std::vector<float> values(count);
  for (float& value : values) value = low + (high - low) * (generator.next_float() + 1) / 2;
  return values;
}
inline std::vector<std::uint32_t> uniform_words(std::size_t count, std::uint64_t seed,
                                                std::uint64_t bound) {
  Generator generator(seed);
  std::vector<std::uint32_t> values(count);
  for (std::uint32_t& value : values) value = static_cast<std::uint32_t>(generator.next() % bound);
  return values;
}

// `base` times the scale, at least 1, rounded up to a multiple of `unit`.
inline std::uint32_t scaled(const CaseOptions& options, double base, std::uint32_t unit = 1) {
  const auto n = static_cast<std::uint64_t>(std::max(1.0, base * options.scale));
  return static_cast<std::uint32_t>((n + unit - 1) / unit * unit);
}
// The same for an edge, of which `dimensions` make the work.
inline std::uint32_t scaled_edge(const CaseOptions& options, double base, double dimensions,
                                 std::uint32_t unit = 1) {
  const double edge = base * std::pow(options.scale, 1 / dimensions);
  const auto n = static_cast<std::uint64_t>(std::max(1.0, edge));
  return static_cast<std::uint32_t>((n + unit - 1) / unit * unit);
}
inline std::uint32_t blocks(std::uint64_t n, std::uint32_t per_block) {
  return static_cast<std::uint32_t>((n + per_block - 1) / per_block);
}

}  // namespace sluice::suite
