// SPDX-License-Identifier: Apache-2.0
// What `sluicectl doctor` and `sluice-agent doctor` find, and how they print it. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct Finding {
  enum class State {
    kRight,
    kWrong,
    kSkipped,  // could not be checked; `fact` says why
  };
  std::string name;  // one word, for scripts; does not change its meaning
  State state = State::kSkipped;
  std::string fact;  // what was found, one line
  std::string mend;  // what to do; empty if it is right
};

bool all_right(const std::vector<Finding>& findings);
bool any_wrong(const std::vector<Finding>& findings);
// A line for each, mends below.
std::string as_text(const std::vector<Finding>& findings);
// {"right": BOOL, "checks": [{"name", "state", "fact", "mend"}]}
std::string as_json(const std::vector<Finding>& findings, bool right);

}  // namespace sluice
