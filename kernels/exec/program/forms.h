// SPDX-License-Identifier: Apache-2.0
// Which forms of an instruction there are: its words between dots, as PTX ISA 9.0 has them for
// sm_90 and below, less what this interpreter does not carry out. A form that is not here is
// refused when the module is loaded; so no word of an instruction is ever overlooked. Internal to
// kernels/exec; pure. New instructions may leave the check to their decoders by having no row.
#pragma once

#include <string_view>

namespace sluice::exec::detail {

enum class Form { kKnown, kUnknown, kNotListed };

// `opcode`: with all its words, "ld.global.v4.f32".
Form check_form(std::string_view opcode);

}  // namespace sluice::exec::detail
