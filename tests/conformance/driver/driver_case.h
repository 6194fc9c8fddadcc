// SPDX-License-Identifier: Apache-2.0
// What the cases of the driver API share. They run on any libcuda.so.1: NVIDIA's, the guest's, the
// software GPU (tests/conformance/ways.py compares what they answer). Each begins in the primary
// context and leaves no work behind.
//
//   OK(call)               the call succeeds
//   ANSWERS(error, call)   it answers `error`
//   REFUSED(call)          it answers some error: which one is not documented, or differs by driver
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/cuda_graph.h"

namespace sluice::test {

struct DriverCall {
  const char* file;
  int line;
  const char* text;
};
void expect_result(const DriverCall& call, CUresult expected, CUresult result);
void expect_refusal(const DriverCall& call, CUresult result);
// With SLUICE_CASES_ANSWERS in the environment, prints an error for ways.py to compare.
void tell_answer(const std::string& what, CUresult result);

#define SLUICE_DRIVER_CALL(call) (::sluice::test::DriverCall{__FILE__, __LINE__, #call})
#define ANSWERS(expected, call) \
  ::sluice::test::expect_result(SLUICE_DRIVER_CALL(call), expected, (call))
#define OK(call) ANSWERS(CUDA_SUCCESS, call)
#define REFUSED(call) ::sluice::test::expect_refusal(SLUICE_DRIVER_CALL(call), (call))

class DriverCase : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  // A kernel of the module that all cases have: index, add_one, spin.
  CUfunction kernel(const char* name);

  CUcontext context_ = nullptr;
};

// Kinds of memory, and a piece of one. Bytes are written and read from the host, whatever it is.
enum class Kind { kPageable, kPinned, kDevice, kRegistered, kManaged };
inline constexpr Kind kAllKinds[] = {Kind::kPageable, Kind::kPinned, Kind::kDevice,
                                     Kind::kRegistered, Kind::kManaged};
const char* name_of(Kind kind);

class Piece {
 public:
  Piece(Kind kind, size_t bytes);
  ~Piece();
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  void write(const std::vector<uint8_t>& bytes);
  std::vector<uint8_t> read() const;
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(at_); }
  // How a copy of boxes names it.
  CUmemorytype type() const {
    return kind_ == Kind::kDevice    ? CU_MEMORYTYPE_DEVICE
           : kind_ == Kind::kManaged ? CU_MEMORYTYPE_UNIFIED
                                     : CU_MEMORYTYPE_HOST;
  }

 private:
  Kind kind_;
  size_t bytes_;
  void* at_ = nullptr;
};

// 1, 2, 3, ... from `first`, as bytes.
std::vector<uint8_t> counted_bytes(size_t count, unsigned first);

}  // namespace sluice::test
