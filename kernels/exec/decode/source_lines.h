// SPDX-License-Identifier: Apache-2.0
// From PTX lines to source lines, for messages. Internal to kernels/exec; used once per module, by
// decode(). Modules without .loc cost nothing.
#pragma once

namespace sluice::ptx {
class Module;
}

namespace sluice::exec::detail {

struct Code;

// Fills code.sources and code.source_files from the module's .file and .loc directives.
void read_source_lines(const ptx::Module& module, Code& code);

}  // namespace sluice::exec::detail
