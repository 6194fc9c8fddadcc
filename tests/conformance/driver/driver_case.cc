// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/driver/driver_case.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sluice::test {

namespace {

// index: out[i] = i + 1, i the thread's number in the grid, for i below n.
// add_one: out[i] += 1, one block. spin: until *word is not 0.
const char* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry index(.param .u64 out, .param .u32 n)
{
  .reg .b64 %d<4>; .reg .b32 %r<20>; .reg .pred %p<2>;
  ld.param.u64 %d1, [out]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.y; mov.u32 %r4, %ctaid.y;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ctaid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  mov.u32 %r5, %ntid.x; mov.u32 %r6, %ntid.y; mov.u32 %r7, %ntid.z;
  mov.u32 %r8, %tid.z; mov.u32 %r9, %tid.y; mov.u32 %r10, %tid.x;
  mad.lo.u32 %r8, %r8, %r6, %r9;
  mad.lo.u32 %r8, %r8, %r5, %r10;
  mul.lo.u32 %r5, %r5, %r6; mul.lo.u32 %r5, %r5, %r7;
  mad.lo.u32 %r2, %r2, %r5, %r8;
  setp.ge.u32 %p1, %r2, %r1; @%p1 bra DONE;
  mul.wide.u32 %d2, %r2, 4; add.u64 %d1, %d1, %d2;
  add.u32 %r2, %r2, 1; st.global.u32 [%d1], %r2;
DONE:
  ret;
}
.visible .entry add_one(.param .u64 out)
{
  .reg .b64 %d<3>; .reg .b32 %r<3>;
  ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;
  ld.global.u32 %r2, [%d1]; add.u32 %r2, %r2, 1; st.global.u32 [%d1], %r2;
  ret;
}
.visible .entry add_two_numbers(.param .u64 out, .param .u32 a, .param .f32 b)
{
  .reg .b64 %d<2>; .reg .b32 %r<3>; .reg .f32 %f<2>;
  ld.param.u64 %d1, [out]; ld.param.u32 %r1, [a]; ld.param.f32 %f1, [b];
  cvt.rzi.u32.f32 %r2, %f1; add.u32 %r1, %r1, %r2; st.global.u32 [%d1], %r1;
  ret;
}
.visible .global .align 4 .u32 number = 42;
)";

bool tells() {
  static const bool it = std::getenv("SLUICE_CASES_ANSWERS") != nullptr;
  return it;
}
std::string named(CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "?";
  return std::string(name) + " (" + std::to_string(result) + ")";
}

}  // namespace

void tell_answer(const std::string& what, CUresult result) {
  if (tells()) std::printf("answer: %s = %s\n", what.c_str(), named(result).c_str());
}

void expect_result(const DriverCall& call, CUresult expected, CUresult result) {
  if (result == expected && result == CUDA_SUCCESS) return;
  tell_answer(std::to_string(call.line) + ": " + call.text, result);
  if (result != expected)
    ADD_FAILURE_AT(call.file, call.line)
        << call.text << " answers " << named(result) << ", not " << named(expected);
}

void expect_refusal(const DriverCall& call, CUresult result) {
  tell_answer(std::to_string(call.line) + ": " + call.text, result);
  if (result == CUDA_SUCCESS) ADD_FAILURE_AT(call.file, call.line) << call.text << " succeeds";
}

void DriverCase::SetUp() {
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
  OK(cuCtxSetCurrent(context_));
}
void DriverCase::TearDown() { OK(cuCtxSynchronize()); }

CUfunction DriverCase::kernel(const char* name) {
  static CUmodule module = [] {
    CUmodule made = nullptr;
    OK(cuModuleLoadData(&made, kPtx));
    return made;
  }();
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kPageable:
      return "Pageable";
    case Kind::kPinned:
      return "Pinned";
    case Kind::kDevice:
      return "Device";
    case Kind::kRegistered:
      return "Registered";
    case Kind::kManaged:
      return "Managed";
  }
  return "";
}

Piece::Piece(Kind kind, size_t bytes) : kind_(kind), bytes_(bytes) {
  CUdeviceptr device = 0;
  switch (kind) {
    case Kind::kPageable:
      at_ = std::malloc(bytes);
      break;
    case Kind::kPinned:
      OK(cuMemHostAlloc(&at_, bytes, CU_MEMHOSTALLOC_PORTABLE));
      break;
    case Kind::kRegistered:
      at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      OK(cuMemHostRegister(at_, bytes, 0));
      break;
    case Kind::kDevice:
      OK(cuMemAlloc(&device, bytes));
      at_ = reinterpret_cast<void*>(device);
      break;
    case Kind::kManaged:
      OK(cuMemAllocManaged(&device, bytes, CU_MEM_ATTACH_GLOBAL));
      at_ = reinterpret_cast<void*>(device);
      break;
  }
}
Piece::~Piece() {
  switch (kind_) {
    case Kind::kPageable:
      std::free(at_);
      break;
    case Kind::kPinned:
      OK(cuMemFreeHost(at_));
      break;
    case Kind::kRegistered:
      OK(cuMemHostUnregister(at_));
      ::munmap(at_, bytes_);
      break;
    case Kind::kDevice:
    case Kind::kManaged:
      OK(cuMemFree(address()));
      break;
  }
}
void Piece::write(const std::vector<uint8_t>& bytes) {
  if (kind_ == Kind::kDevice) {
    OK(cuMemcpyHtoD(address(), bytes.data(), bytes.size()));
    OK(cuStreamSynchronize(nullptr));  // streams that do not wait for the legacy one
  } else {
    std::memcpy(at_, bytes.data(), bytes.size());
  }
}
std::vector<uint8_t> Piece::read() const {
  std::vector<uint8_t> bytes(bytes_);
  if (kind_ == Kind::kDevice)
    OK(cuMemcpyDtoH(bytes.data(), address(), bytes_));
  else
    std::memcpy(bytes.data(), at_, bytes_);
  return bytes;
}

std::vector<uint8_t> counted_bytes(size_t count, unsigned first) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(first + i * 7);
  return bytes;
}

}  // namespace sluice::test
