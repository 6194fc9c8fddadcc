// SPDX-License-Identifier: Apache-2.0
// Keeps the PTX of machine code with it: writes a cubin's section `.sluice.ptx` (kPtxSection). The
// guest's libcuda.so.1 reads it there, for the clones of kernels that a program compiled at run
// time (guest-agent/jit); drivers ignore the section.
//
//   before   header | contents | section table | segment table
//   after    header | contents | PTX | names of sections | section table | segment table
//
// What was there keeps its place and its number. A compiler's other order of tables is kept, too:
// then the new section table stands at the end, the rest as it was.
//
// Pure; any thread. The bytes are a guest's. Errors have a CUresult as code.
#pragma once

#include <string>
#include <string_view>

#include "mediator/base/result.h"

namespace sluice::cubin {

// `image` with `ptx` in its section. An error where it has one already, or is no whole cubin.
Result<std::string> attach_ptx(std::string_view image, std::string_view ptx);

}  // namespace sluice::cubin
