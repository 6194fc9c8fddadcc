// SPDX-License-Identifier: Apache-2.0
// Linking PTX with cuLink*: what is resolved, what is kept apart, what is refused.
#include <cstring>
#include <string>

#include "tests/unit/softgpu/fixture.h"

namespace sluice {
namespace {

constexpr char kHead[] = ".version 8.0\n.target sm_80\n.address_size 64\n";

// Calls a function, reads a variable and a table that others have; has a local `step` of its own.
constexpr char kCaller[] = R"(
.extern .func (.param .b32 r) twice(.param .b32 x);
.extern .global .align 4 .u32 offset;
.global .align 4 .u32 step = 1000;
.weak .global .align 4 .u32 shade = 1;
.visible .entry run(.param .u64 out, .param .u32 x)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  .param .b32 p0;
  .param .b32 r0;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [x];
  st.param.b32 [p0], %r1;
  call (r0), twice, (p0);
  ld.param.b32 %r2, [r0];
  ld.global.u32 %r3, [offset];
  add.u32 %r2, %r2, %r3;
  ld.global.u32 %r4, [step];
  add.u32 %r2, %r2, %r4;
  ld.global.u32 %r5, [shade];
  add.u32 %r2, %r2, %r5;
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

constexpr char kCallee[] = R"(
.visible .global .align 4 .u32 offset = 100;
.global .align 4 .u32 step = 50000;
.weak .global .align 4 .u32 shade = 1;
.visible .func (.param .b32 r) twice(.param .b32 x)
{
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [x];
  add.u32 %r1, %r1, %r1;
  ld.global.u32 %r2, [step];
  add.u32 %r1, %r1, %r2;
  st.param.b32 [r], %r1;
  ret;
}
)";

class SoftGpuLink : public SoftGpuTest {
 protected:
  CUresult add(CUlinkState link, const std::string& body) {
    std::string text = kHead + body;
    return api.cuLinkAddData(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "part", 0,
                             nullptr, nullptr);
  }
  // Links the parts; what cuLinkComplete says. `text`: what it made.
  CUresult link(const std::vector<std::string>& parts, std::string* text = nullptr) {
    CUlinkState state = nullptr;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log_, reinterpret_cast<void*>(sizeof log_)};
    EXPECT_EQ(api.cuLinkCreate(2, options, values, &state), CUDA_SUCCESS);
    for (const std::string& part : parts) EXPECT_EQ(add(state, part), CUDA_SUCCESS);
    void* image = nullptr;
    size_t bytes = 0;
    const CUresult r = api.cuLinkComplete(state, &image, &bytes);
    if (r == CUDA_SUCCESS && text != nullptr) text->assign(static_cast<char*>(image), bytes - 1);
    EXPECT_EQ(api.cuLinkDestroy(state), CUDA_SUCCESS);
    return r;
  }
  char log_[512] = {};
};

TEST_F(SoftGpuLink, FunctionsAndVariablesOfOtherModulesAreFoundAndLocalOnesKeptApart) {
  for (const auto& parts : {std::vector<std::string>{kCaller, kCallee}, {kCallee, kCaller}}) {
    std::string text;
    OK(link(parts, &text));
    CUmodule module = nullptr;
    CUfunction f = nullptr;
    OK(api.cuModuleLoadData(&module, text.c_str()));
    OK(api.cuModuleGetFunction(&f, module, "run"));
    CUdeviceptr out = allocate(4);
    uint32_t x = 7;
    void* arguments[] = {&out, &x};
    OK(api.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    EXPECT_EQ(read(out, 1)[0], 2 * 7 + 50000 + 100 + 1000 + 1u);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    OK(api.cuModuleGetGlobal(&address, &bytes, module, "offset"));
    EXPECT_EQ(read(address, 1)[0], 100u);
    OK(api.cuModuleUnload(module));
  }
}

// Local functions and variables that are called like instructions, types and parts of %tid are
// renamed where they are names, and nowhere else.
TEST_F(SoftGpuLink, LocalNamesMayBeWordsOfTheLanguage) {
  const auto part = [](const std::string& entry, const std::string& addend) {
    return R"(
.global .align 4 .u32 x = )" +
           addend + R"(;
.global .align 8 .u64 global = generic(x);
.func (.param .b32 r) add(.param .b32 u32) // add, "x
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  .reg .pred p;
  ld.param.b32 %r1, [u32];
  ld.global.u64 %rd1, [global]; /* add; x */
  ld.u32 %r2, [%rd1];
  setp.ne.u32 p, %r1, 0;
  @p bra ret;
  mov.u32 %r1, %tid.x;
ret: add.u32 %r1, %r1, %r2;
  st.param.b32 [r], %r1;
  ret;
}
.visible .entry )" +
           entry + R"((.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  { .param .b32 a; .param .b32 b; st.param.b32 [a], 5; call (b), add, (a); ld.param.b32 %r1, [b]; }
  st.global.v2.u32 [%rd1], {%r1, %r1};
  ret;
}
)";
  };
  std::string text;
  ASSERT_EQ(link({part("one", "10"), part("two", "200")}, &text), CUDA_SUCCESS) << log_;
  CUmodule module = nullptr;
  OK(api.cuModuleLoadData(&module, text.c_str()));
  const CUdeviceptr out = allocate(8);
  for (const auto& [name, sum] : {std::pair{"one", 15u}, {"two", 205u}}) {
    CUfunction f = nullptr;
    OK(api.cuModuleGetFunction(&f, module, name));
    void* params[] = {const_cast<CUdeviceptr*>(&out)};
    OK(api.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    uint32_t got[2] = {};
    OK(api.cuMemcpyDtoH(got, out, 8));
    EXPECT_EQ(got[0], sum) << name;
    EXPECT_EQ(got[1], sum) << name;
  }
}

TEST_F(SoftGpuLink, WhatDoesNotFitTogetherIsRefusedByName) {
  FAILS(CUDA_ERROR_INVALID_PTX, link({kCallee, kCallee}));
  EXPECT_NE(std::string(log_).find("offset"), std::string::npos) << log_;
  EXPECT_NE(link({kCaller}), CUDA_SUCCESS) << "twice is nowhere";
  EXPECT_NE(std::string(log_), "");
  EXPECT_NE(link({}), CUDA_SUCCESS);
  CUlinkState state = nullptr;
  OK(api.cuLinkCreate(0, nullptr, nullptr, &state));
  char cubin[] =
      "\x7f"
      "ELF";
  FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, api.cuLinkAddData(state, CU_JIT_INPUT_CUBIN, cubin,
                                                        sizeof cubin, "c", 0, nullptr, nullptr));
  OK(api.cuLinkDestroy(state));
  FAILS(CUDA_ERROR_INVALID_HANDLE, api.cuLinkDestroy(state));
}

// What was refused is no part of the link; what a part needs of others is asked at the end.
TEST_F(SoftGpuLink, WrongTextIsRefusedWhenItIsAdded) {
  CUlinkState state = nullptr;
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log_, reinterpret_cast<void*>(sizeof log_)};
  OK(api.cuLinkCreate(2, options, values, &state));
  for (const char* wrong : {"this is no PTX", ".visible .entry f() { bogus.u32 %r1; ret; }"}) {
    values[1] = reinterpret_cast<void*>(sizeof log_);
    log_[0] = '\0';
    FAILS(CUDA_ERROR_INVALID_PTX, add(state, wrong));
    EXPECT_NE(std::string(log_), "") << wrong;
  }
  OK(add(state, kCaller));
  OK(add(state, kCallee));
  void* image = nullptr;
  size_t bytes = 0;
  OK(api.cuLinkComplete(state, &image, &bytes));
  OK(api.cuLinkDestroy(state));
}

}  // namespace
}  // namespace sluice
