// SPDX-License-Identifier: Apache-2.0
// Kernels that a naive rewriter gets wrong, one for each hazard that is known, in PTX by hand. All
// take (out, in, n): two pointers and a number. For hazards_test.cc.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace sluice::tool::hazards {

struct Hazard {
  const char* name;
  const char* tier;  // what the rewriter must make of it
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t dynamic_shared;
  std::uint32_t n;
  const char* before;           // at module scope
  const char* body;             // behind the common start (kStart)
  const char* directives = "";  // of the entry, in front of its `{`
  const char* target = "sm_90";
};

// The module: `before`, and the entry k.
std::string text_of(const Hazard& h);

void PrintTo(const Hazard& h, std::ostream* out);  // for GoogleTest

// %r0 thread, %r1 block (x), %r2 block size (x), %r3 = global thread, %r4 = n; %rd0 out, %rd1 in;
// %rd2 = out + 4 * global thread, %r5 = in[global thread % 1024].
inline constexpr const char* kStart = R"(
	.reg .pred %p<16>;
	.reg .b16 %h<8>;
	.reg .b32 %r<64>;
	.reg .b64 %rd<32>;
	mov.u32 %r0, %tid.x;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mad.lo.u32 %r3, %r1, %r2, %r0;
	ld.param.u32 %r4, [n];
	ld.param.u64 %rd0, [out];
	ld.param.u64 %rd1, [in];
	cvta.to.global.u64 %rd0, %rd0;
	cvta.to.global.u64 %rd1, %rd1;
	mul.wide.u32 %rd2, %r3, 4;
	add.s64 %rd2, %rd0, %rd2;
	and.b32 %r6, %r3, 1023;
	mul.wide.u32 %rd3, %r6, 4;
	add.s64 %rd3, %rd1, %rd3;
	ld.global.u32 %r5, [%rd3];
)";

// All of them. The parts, by what makes them hazards, have a file each.
const std::vector<Hazard>& all();
std::vector<Hazard> lane_hazards();
std::vector<Hazard> wait_hazards();
std::vector<Hazard> async_hazards();
std::vector<Hazard> call_hazards();

}  // namespace sluice::tool::hazards
