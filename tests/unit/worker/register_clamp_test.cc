// SPDX-License-Identifier: Apache-2.0
// The clamped form of clones that lose a place on an SM
// (mediator/worker/launch/plan/register_clamp.h): which text it is added to, with how many
// registers, and when it is launched; on the software GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "abi/preempt.h"
#include "kernels/passes/rewrite.h"
#include "mediator/worker/launch/plan/register_clamp.h"

namespace sluice::worker {
namespace {

// A kernel with `live` 32-bit values alive at once; it counts its threads in a variable of the
// module.
std::string wide_kernel(const std::string& name, int live) {
  std::string t = ".visible .entry " + name +
                  "(.param .u64 p_out)\n{\n.reg .b64 %rd<4>;\n.reg .b32 %r<" +
                  std::to_string(live + 4) + ">;\nld.param.u64 %rd1, [p_out];\n";
  for (int i = 1; i <= live; ++i)
    t += "ld.global.u32 %r" + std::to_string(i) + ", [%rd1+" + std::to_string(4 * i) + "];\n";
  for (int i = 2; i <= live; ++i) t += "mad.lo.u32 %r1, %r1, %r1, %r" + std::to_string(i) + ";\n";
  return t +
         "st.global.u32 [%rd1], %r1;\nmov.u64 %rd2, counter;\natom.global.add.u32 %r2, [%rd2], "
         "1;\nret;\n}\n";
}
const std::string kHead =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 counter = 0;\n";

std::string rewritten(const std::string& text) {
  auto r = passes::rewrite_module(text);
  EXPECT_TRUE(r.ok());
  for (const auto& k : r->kernels) EXPECT_TRUE(k.evictable) << k.name << ": " << k.reason;
  return r->text;
}

TEST(RegisterClampText, FindsClonesAndNothingElse) {
  const std::string text = kHead +
                           ".global .u32 table[2] = {1, 2}; // .entry a__sluice() {}\n"
                           "/* .entry b__sluice() { */ .file 1 \".entry c__sluice() {\"\n"
                           ".visible .entry plain(.param .u32 p) { ret; }\n"
                           ".entry d__sluice ( .param .align 8 .b8 p[128] ) .maxntid 64, 1, 1\n"
                           "{ { .reg .b32 %r<2>; } ret; }\n"
                           ".visible .entry e__sluice { ret; }\n"
                           ".entry e__sluice_once() { ret; } .entry __sluice_once() { ret; }\n"
                           ".extern .entry f__sluice(.param .u32 p);\n"
                           ".visible .entry g__sluice() .maxnreg 40 { ret; }\n"
                           ".func h__sluice() { ret; }\n"
                           ".entry __sluice() { ret; }\n.entryi__sluice() { ret; }\n";
  const auto found = find_clones(text);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].original, "d");
  EXPECT_EQ(found[1].original, "e");
  EXPECT_EQ(found[2].original, "e");
  EXPECT_EQ(found[2].name, "e__sluice_once");
  EXPECT_EQ(text.substr(found[0].name_begin, found[0].name_end - found[0].name_begin), "d__sluice");
  EXPECT_EQ(text.substr(found[0].end - 7, 7), " ret; }");
  const std::vector<Clamp> clamps = {{found[0], 40}, {found[1], 32}, {found[2], 24}};
  const std::string all = add_clamped(text, clamps);
  EXPECT_EQ(all.substr(0, text.size()), text);
  EXPECT_EQ(all.substr(text.size()),
            "\n.visible .entry d__sluice_clamped ( .param .align 8 .b8 p[128] )\n.maxnreg 40\n"
            " .maxntid 64, 1, 1\n{ { .reg .b32 %r<2>; } ret; }\n"
            "\n.visible .entry e__sluice_clamped\n.maxnreg 32\n { ret; }\n"
            "\n.visible .entry e__sluice_once_clamped()\n.maxnreg 24\n { ret; }\n");
}

TEST(RegisterClampText, AloneIsWhatKernelsShareAndTheClampedForms) {
  const std::string head = ".version 7.0\n.extern .shared .b8 s[];\n", tail = "\n// end";
  const std::string function = ".visible .func f() { .reg .b32 %r<2>; ret; }\n",
                    declared = ".visible .func g();\n", kernel = "{ call f; ret; }";
  const std::string text = head + ".visible .entry a() " + kernel + function + ".entry b() " +
                           kernel + declared + ".weak .entry a__sluice() " + kernel + tail;
  const auto found = find_clones(text);
  ASSERT_EQ(found.size(), 1u);
  const std::vector<Clamp> clamps = {{found[0], 40}};
  EXPECT_EQ(clamped_alone(text, clamps),
            head + function + declared + tail +
                "\n.visible .entry a__sluice_clamped()\n.maxnreg 40\n " + kernel + "\n");
  EXPECT_EQ(clamped_alone(text + ".section .debug_info { .b64 $begin_of_a }", clamps), "");
}

TEST(RegisterClampText, BrokenTextEndsTheList) {
  const std::string one = ".entry a__sluice() { ret; }\n";
  for (const char* broken : {".entry b__sluice() { ret;", ".entry b__sluice(", ".entry b__sluice",
                             ".entry", "{ .entry b__sluice() { ret; }", "\"", "/*", "//",
                             ".entry \"b__sluice\" { }", "}}} )) .entry", "\"\\"}) {
    SCOPED_TRACE(broken);
    EXPECT_EQ(find_clones(one + broken).size(), 1u);
  }
  EXPECT_TRUE(find_clones("").empty());
}

TEST(RegisterClampText, BucketsAreThoseOfTheRegisterFile) {
  const RegisterFile file{65536, 2048};
  // Registers for each thread and warps on an SM, from NVIDIA's occupancy tables: 64 up to 32, 48
  // up to 40, 40 up to 48, 36 up to 56, 32 up to 64, 28 up to 72, 24 up to 80, 20 up to 96, 16 up
  // to 128.
  const std::pair<uint32_t, uint32_t> expected[] = {
      {1, 32},  {32, 32}, {33, 40}, {40, 40},  {41, 48},   {56, 56},   {57, 64},  {65, 72},
      {73, 80}, {81, 96}, {96, 96}, {97, 128}, {129, 168}, {169, 255}, {255, 255}};
  for (const auto& [registers, top] : expected)
    EXPECT_EQ(bucket_top(registers, file), top) << registers;
  EXPECT_EQ(bucket_top(20, {65536, 1024}), 64u) << "an SM that holds fewer threads";
  EXPECT_EQ(bucket_top(20, {0, 0}), 255u) << "what a driver should not say does not end in a loop";
}

class RegisterClamp : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = gpu::load_driver(SLUICE_TEST_SOFTCUDA);
    ASSERT_TRUE(loaded.ok());
    api = *loaded;
    ASSERT_EQ(api.cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(api.cuDeviceGet(&device, 0), CUDA_SUCCESS);
    ASSERT_EQ(api.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    ASSERT_EQ(api.cuCtxSetCurrent(context), CUDA_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(api.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS); }
  CUfunction get(CUmodule m, const std::string& name) {
    CUfunction f = nullptr;
    EXPECT_EQ(api.cuModuleGetFunction(&f, m, name.c_str()), CUDA_SUCCESS) << name;
    return f;
  }
  int registers(CUfunction f) {
    int n = 0;
    EXPECT_EQ(api.cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, f), CUDA_SUCCESS);
    return n;
  }
  CloneForms forms(const FittedModule& m, const std::string& name) {
    return {get(m.cu, name), get(m.cu, name + SLUICE_CLONE_SUFFIX),
            clamped_form(api, m.clamped_in, m.clamped, name + SLUICE_CLONE_SUFFIX)};
  }
  gpu::DriverApi api;
  CUdevice device = 0;
  CUcontext context = nullptr;
};

// A width at which the software GPU's estimate puts original and clone on two sides of 64
// registers, the most for a block of 1024 threads.
constexpr int kLive = 48;

TEST_F(RegisterClamp, WhoLosesAPlaceGetsAThirdForm) {
  FittedModule m;
  ASSERT_EQ(load_fitted(api, device,
                        rewritten(kHead + wide_kernel("wide", kLive) + wide_kernel("widest", 160)),
                        {}, &m),
            CUDA_SUCCESS);
  EXPECT_EQ(m.clamped, (std::vector<std::string>{"wide__sluice", "wide__sluice_once"}));
  const CloneForms wide = forms(m, "wide"), widest = forms(m, "widest");
  ASSERT_NE(wide.clamped, nullptr);
  EXPECT_EQ(widest.clamped, nullptr) << "169 to 255 registers are one bucket";
  EXPECT_GT(registers(widest.clone), registers(widest.original));
  EXPECT_GT(registers(wide.clone), 64);
  EXPECT_EQ(static_cast<uint32_t>(registers(wide.clamped)),
            bucket_top(static_cast<uint32_t>(registers(wide.original)), {}));
  // Where the clone does not lose, it stays: no need to be short of registers.
  EXPECT_EQ(choose_form(api, wide, 32, 0, 0).function, wide.clone);
  const ChosenForm large = choose_form(api, wide, 1024, 0, 0);
  EXPECT_EQ(large.function, wide.clamped);
  EXPECT_EQ(large.blocks_per_sm, 1u);
  EXPECT_EQ(choose_form(api, {wide.original, wide.clone, nullptr}, 1024, 0, 0).blocks_per_sm, 0u);
  EXPECT_EQ(choose_form(api, widest, 64, 0, 0).function, widest.clone);
  EXPECT_EQ(choose_form(api, wide, 2048, 0, 0).blocks_per_sm, 0u);
  EXPECT_EQ(choose_form(api, wide, 1024, 0, ~0u).blocks_per_sm, 0u)
      << "more shared memory than there is";
}

// Clones without their original are compared with that of another module.
TEST_F(RegisterClamp, WhoLosesAPlaceByAnOriginalElsewhereGetsAThirdForm) {
  const std::string original = kHead + wide_kernel("wide", kLive);
  passes::RewriteOptions options;
  options.alone = true;
  options.forms = passes::Forms::kFirst;
  const auto made = passes::rewrite_module(original, options);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(ClonesText::of(std::make_shared<std::string>(original)), nullptr);
  EXPECT_EQ(ClonesText::of(std::make_shared<std::string>(rewritten(original))), nullptr);
  const auto alone = ClonesText::of(std::make_shared<std::string>(made->text));
  ASSERT_NE(alone, nullptr);
  ASSERT_EQ(alone->clones.size(), 1u);
  FittedModule first, m;
  ASSERT_EQ(load_fitted(api, device, original, {}, &first), CUDA_SUCCESS);
  ASSERT_EQ(load_fitted(api, device, made->text, {}, &m), CUDA_SUCCESS);
  EXPECT_TRUE(m.clamped.empty()) << "nothing to compare with";
  const CUfunction wide = get(first.cu, "wide");
  const auto clamps = clamps_of(api, device, alone->clones, m.cu, wide);
  ASSERT_EQ(clamps.size(), 1u);
  EXPECT_EQ(clamps[0].registers, bucket_top(static_cast<uint32_t>(registers(wide)), {}));
  load_clamped(api, *alone->text, clamps, &m, Second::kWhole);
  EXPECT_EQ(m.clamped, std::vector<std::string>{"wide__sluice"});
  const CloneForms forms{wide, get(m.cu, "wide__sluice"),
                         clamped_form(api, m.clamped_in, m.clamped, "wide__sluice")};
  ASSERT_NE(forms.clamped, nullptr);
  EXPECT_EQ(choose_form(api, forms, 1024, 0, 0).function, forms.clamped);
  // A narrow clone of the same original loses nothing.
  EXPECT_TRUE(clamps_of(api, device, alone->clones, m.cu, get(m.cu, "wide__sluice")).empty());
}

TEST_F(RegisterClamp, ClonesWithOneTaskABlockGetOneToo) {
  // The narrowest kernel whose clone of one task a block needs more than 64 registers.
  for (int live = kLive; live <= 62; ++live) {
    SCOPED_TRACE(live);
    FittedModule m;
    ASSERT_EQ(load_fitted(api, device, rewritten(kHead + wide_kernel("wide", live)), {}, &m),
              CUDA_SUCCESS);
    const std::string name = "wide" SLUICE_ONE_TASK_SUFFIX;
    const CloneForms f{get(m.cu, "wide"), get(m.cu, name),
                       clamped_form(api, m.clamped_in, m.clamped, name)};
    if (registers(f.clone) <= 64) continue;
    EXPECT_EQ(m.clamped, (std::vector<std::string>{"wide" SLUICE_CLONE_SUFFIX, name}));
    ASSERT_NE(f.clamped, nullptr);
    EXPECT_LE(registers(f.original), 64);
    EXPECT_EQ(static_cast<uint32_t>(registers(f.clamped)),
              bucket_top(static_cast<uint32_t>(registers(f.original)), {}));
    EXPECT_EQ(choose_form(api, f, 1024, 0, 0).function, f.clamped);
    EXPECT_EQ(choose_form(api, f, 32, 0, 0).function, f.clone);
    return;
  }
  FAIL() << "no width at which only the clone needs more than 64 registers";
}

// Of what was compiled once already, only what there is no other way to have is compiled again.
size_t g_texts = 0, g_bytes = 0;
gpu::DriverApi g_unchanged;
CUresult count_bytes(CUmodule* m, const void* text, unsigned n, CUjit_option* o, void** v) {
  ++g_texts;
  g_bytes += std::strlen(static_cast<const char*>(text));
  return g_unchanged.cuModuleLoadDataEx(m, text, n, o, v);
}
TEST_F(RegisterClamp, WithoutVariablesTheClampedFormsAloneAreTheSecondModule) {
  g_unchanged = api;
  g_texts = g_bytes = 0;
  api.cuModuleLoadDataEx = count_bytes;
  // The variable is elsewhere.
  std::string plain =
      ".version 7.0\n.target sm_70\n.address_size 64\n" + wide_kernel("wide", kLive);
  plain.replace(plain.find("counter"), 7, "4096");
  const std::string text = rewritten(plain);
  FittedModule m;
  ASSERT_EQ(load_fitted(api, device, text, {}, &m, Second::kAlone), CUDA_SUCCESS);
  EXPECT_EQ(m.clamped, (std::vector<std::string>{"wide__sluice", "wide__sluice_once"}));
  EXPECT_EQ(g_texts, 2u);
  EXPECT_LT(g_bytes, 2 * text.size());
  EXPECT_EQ(m.clamped_in, m.other);
  EXPECT_NE(m.cu, m.other);
  const CloneForms wide = forms(m, "wide");
  ASSERT_NE(wide.clamped, nullptr);
  EXPECT_GT(registers(wide.clone), 64);
  EXPECT_EQ(registers(wide.clamped), 64);
  EXPECT_EQ(choose_form(api, wide, 1024, 0, 0).function, wide.clamped);
  CUfunction twice = nullptr;
  EXPECT_EQ(api.cuModuleGetFunction(&twice, m.other, "wide"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(api.cuModuleGetFunction(&twice, m.other, "wide__sluice"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(RegisterClamp, AllFormsHaveTheSameVariables) {
  FittedModule m;
  ASSERT_EQ(load_fitted(api, device, rewritten(kHead + wide_kernel("wide", kLive)), {}, &m),
            CUDA_SUCCESS);
  const CloneForms f = forms(m, "wide");
  ASSERT_NE(f.clamped, nullptr);
  CUdeviceptr counter = 0, out = 0;
  size_t bytes = 0;
  ASSERT_EQ(api.cuModuleGetGlobal(&counter, &bytes, m.cu, "counter"), CUDA_SUCCESS);
  ASSERT_EQ(api.cuMemAlloc(&out, 4096), CUDA_SUCCESS);
  ASSERT_EQ(api.cuMemsetD8(out, 0, 4096), CUDA_SUCCESS);
  void* original[] = {&out};
  ASSERT_EQ(api.cuLaunchKernel(f.original, 1, 1, 1, 32, 1, 1, 0, nullptr, original, nullptr),
            CUDA_SUCCESS);
  // The third form under a control block of its own, 8 tasks on two workers.
  CUdeviceptr memory = 0;
  ASSERT_EQ(api.cuMemAlloc(&memory, 8192), CUDA_SUCCESS);
  ASSERT_EQ(api.cuMemsetD8(memory, 0, 8192), CUDA_SUCCESS);
  sluice_preempt_params p{};
  p.control = memory;
  p.signal = memory + 1024;
  p.left = memory + 2048;
  p.grid_x = 8;
  p.grid_y = p.grid_z = 1;
  p.tasks = 8;
  p.generation = 1;
  p.chunk = p.chunk_max = 1;
  p.left_slots = 2;
  p.magic_x = p.magic_y = 1;
  p.target_clocks = 1000;
  void* clone[] = {&out, &p};
  ASSERT_EQ(api.cuLaunchKernel(f.clamped, 2, 1, 1, 1024, 1, 1, 0, nullptr, clone, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(api.cuCtxSynchronize(), CUDA_SUCCESS);
  uint32_t threads = 0;
  ASSERT_EQ(api.cuMemcpyDtoH(&threads, counter, sizeof threads), CUDA_SUCCESS);
  EXPECT_EQ(threads, 32u + 8 * 1024);
}

// What a driver may do otherwise than the software GPU. The table's pointers lead here first.
int g_module_loads = 0, g_module_unloads = 0;
CUresult refuse_second(CUmodule* m, const void* text, unsigned n, CUjit_option* o, void** v) {
  return ++g_module_loads == 2 ? CUDA_ERROR_INVALID_PTX
                               : g_unchanged.cuModuleLoadDataEx(m, text, n, o, v);
}
CUresult count_unload(CUmodule m) {
  ++g_module_unloads;
  return g_unchanged.cuModuleUnload(m);
}
CUresult spill(int* value, CUfunction_attribute a, CUfunction f) {
  const CUresult r = g_unchanged.cuFuncGetAttribute(value, a, f);
  int registers = 0;
  if (a == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES &&
      g_unchanged.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f) == CUDA_SUCCESS &&
      registers <= 64)
    *value += 1024;
  return r;
}

TEST_F(RegisterClamp, ASecondTextThatTheDriverRefusesChangesNothing) {
  g_unchanged = api;
  g_module_loads = g_module_unloads = 0;
  api.cuModuleLoadDataEx = refuse_second;
  api.cuModuleUnload = count_unload;
  FittedModule m;
  ASSERT_EQ(load_fitted(api, device, rewritten(kHead + wide_kernel("wide", kLive)), {}, &m),
            CUDA_SUCCESS);
  EXPECT_EQ(g_module_loads, 2);
  EXPECT_EQ(g_module_unloads, 0);
  EXPECT_TRUE(m.clamped.empty());
  EXPECT_EQ(forms(m, "wide").clamped, nullptr);
}

TEST_F(RegisterClamp, AFormThatSpillsMuchIsDropped) {
  g_unchanged = api;
  g_module_unloads = 0;
  api.cuFuncGetAttribute = spill;
  api.cuModuleUnload = count_unload;
  FittedModule m;
  ASSERT_EQ(load_fitted(api, device, rewritten(kHead + wide_kernel("wide", kLive)), {}, &m),
            CUDA_SUCCESS);
  EXPECT_TRUE(m.clamped.empty());
  EXPECT_NE(m.other, nullptr) << "the second module, for the caller to unload";
  EXPECT_NE(m.other, m.cu);
  EXPECT_EQ(g_module_unloads, 0);
  EXPECT_EQ(choose_form(api, forms(m, "wide"), 1024, 0, 0).blocks_per_sm, 0u);
}

TEST_F(RegisterClamp, TheCompilersWordsComeBack) {
  std::vector<char> log(256);
  FittedModule m;
  EXPECT_NE(load_fitted(api, device, kHead + ".visible .entry k() { nonsense; }", log, &m),
            CUDA_SUCCESS);
  EXPECT_GT(::strnlen(log.data(), log.size()), 0u);
}

}  // namespace
}  // namespace sluice::worker
