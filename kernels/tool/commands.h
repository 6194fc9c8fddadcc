// SPDX-License-Identifier: Apache-2.0
// What sluice-ptx can do, one function per subcommand. Each returns the program's exit status: 0,
// or 1 where a file could not be read, written or cut into statements, or a check failed.
//
// One thread, no state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ptx/module.h"
#include "mediator/base/result.h"

namespace sluice::tool {

struct CheckOptions {
  std::string input;
  std::string kernel;  // empty: all of the module
  std::array<std::uint32_t, 3> grid{13, 1, 1}, block{64, 1, 1};
  bool block_given = false;            // and so holds against .maxntid too
  std::vector<std::string> arguments;  // see --args in the manual page
  std::uint32_t dynamic_shared = 1024;
  bool shared_given = false;  // and so holds for kernels that name no shared memory
  std::uint64_t seed = 1;
  std::uint32_t rounds = 20;
  std::uint32_t evictions = 8;
  std::uint64_t buffer_bytes = 1 << 20;
  bool json = false;
};

int rewrite(const std::string& input, const std::string& output);
int report(const std::vector<std::string>& inputs, bool json, bool table,
           const std::string& assembler);
int print(const std::string& input, const std::string& output, bool statements);
int print_after_each(const std::string& input, const std::string& output);
int check(const CheckOptions& options);

// "-" is standard input.
Result<ptx::Module> load(const std::string& path);
bool write_out(const std::string& path, const std::string& text);
int complain(const std::string& message);

}  // namespace sluice::tool
