// SPDX-License-Identifier: Apache-2.0
// The recorded CCCL programs (tests/cccl) as cases of the suite's catalogue, from the folder that
// record.sh wrote; without the folder there are none. Reads files; throws std::runtime_error where
// one is missing or malformed.
//
//     for (const std::string& name : cccl_names(folder)) {
//       const suite::Trace trace = load_cccl(folder, name);   // trace.work.ptx is filled in
//     }
#pragma once

#include <string>
#include <vector>

#include "kernels/suite/catalog/trace.h"

namespace sluice::testing {

// Names of all cases, sorted.
std::vector<std::string> cccl_names(const std::string& folder);
// File names of all modules, sorted: each program compiled for sm_75 and for sm_90.
std::vector<std::string> cccl_modules(const std::string& folder);
// The path of a file in the folder.
std::string cccl_file(const std::string& folder, const std::string& name);
// A whole file, for example a module.
std::string read_file(const std::string& path);
// One case, with its module's text.
suite::Trace load_cccl(const std::string& folder, const std::string& name);

}  // namespace sluice::testing
