// SPDX-License-Identifier: Apache-2.0
// Parsing a command line that has commands, for programs that require one. Of a command that is not
// there CLI11 says only that one is missing; this names it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice {

// Throws what CLI11 throws.
inline void parse_commands(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& e) {
    const auto others = app.remaining();
    if (others.empty() || !app.get_subcommands().empty()) throw;
    throw CLI::ExtrasError("There is no command or option '" + others[0] + "'", e.get_exit_code());
  }
}

}  // namespace sluice
