// SPDX-License-Identifier: Apache-2.0
// SLUICE_TRACE=calls: a line for each call that crosses the channel, with its arguments, what came
// of it, and how long the caller waited. To where SLUICE_LOG says, else to stderr. A call that
// nobody waits for is "queued". What the guest answers by itself does not appear. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "abi/cuda_driver.h"
#include "abi/wire.h"

namespace sluice::guest {

bool tracing();

// One call, from its construction to end(). Costs nothing but a flag's check while nobody traces.
class Traced {
 public:
  explicit Traced(uint16_t opcode);
  template <class Body>
  Traced(uint16_t opcode, const Body& body) : Traced(opcode) {
    if (on_) describe(body);
  }

  template <class T>
  void argument(const T& value) {
    if (!on_) return;
    if constexpr (std::is_same_v<T, const char*>)
      text(value == nullptr ? "null" : value);
    else if constexpr (std::is_pointer_v<T>)
      address(reinterpret_cast<uint64_t>(value));
    else if constexpr (std::is_enum_v<T>)
      number(static_cast<int64_t>(value));
    else if constexpr (std::is_same_v<T, CUdeviceptr>)
      address(value);
    else if constexpr (std::is_integral_v<T>)
      number(static_cast<int64_t>(value));
    else
      text("{...}");
  }

  // Writes the line; returns `status`.
  CUresult end(CUresult status, bool queued = false);

 private:
  void text(const std::string& value);
  void number(int64_t value);
  void address(uint64_t value);
  template <class Body>
  void describe(const Body&) {}
  void describe(const sluice_copy& c);
  void describe(const sluice_memset& m);
  void describe(const sluice_synchronize& s);

  bool on_;
  uint64_t begin_ns_ = 0;
  const char* separator_ = "";
  std::string line_;
};

}  // namespace sluice::guest
