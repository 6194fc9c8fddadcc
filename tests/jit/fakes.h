// SPDX-License-Identifier: Apache-2.0
// What the compilers of these tests make: a kernel `scale` (out, factor, count), as PTX, and as
// machine code of the same parameters that does nothing. The software GPU does not run that.
#pragma once

#include <string>

#include "tests/support/cubins.h"

namespace sluice::test {

inline std::string scale_ptx(const std::string& name = "scale") {
  return R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry )" +
         name + R"((.param .u64 out, .param .f32 factor, .param .u32 count)
{
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [out]; ld.param.f32 %f1, [factor]; ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.u32 %d2, %r5, 4; add.s64 %d3, %d1, %d2;
  ld.global.f32 %f2, [%d3]; mul.f32 %f3, %f2, %f1; st.global.f32 [%d3], %f3;
done:
  ret;
}
)";
}

inline std::string scale_machine_code(const std::string& name = "scale") {
  return CubinBuilder().kernel(name, {{0, 8}, {8, 4}, {12, 4}}).image();
}

}  // namespace sluice::test
