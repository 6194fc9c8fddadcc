// SPDX-License-Identifier: Apache-2.0
// What the models' tests expect of a search: nothing wrong, or a mutant found out. Prints how much
// was searched.
#pragma once

#include <gtest/gtest.h>

#include <iostream>

#include "tests/model/explorer.h"

namespace sluice::model {

template <class Model>
void expect_ok(const Model& model) {
  const Exploration e = explore(model);
  std::cout << e.states << " states, " << e.edges << " steps" << std::endl;
  EXPECT_TRUE(e.ok()) << e.report();
  EXPECT_GT(e.states, 1000u);
}

// Explores `model`, one of whose steps is left out or swapped, and expects the search to find that:
// any problem, or `problem` if it is not null.
template <class Model, class Mutant>
void expect_caught(const Model& model, Mutant mutant, const char* problem) {
  const Exploration e = explore(model);
  std::cout << "mutant " << static_cast<int>(mutant) << ": " << e.states << " states, " << e.problem
            << std::endl;
  EXPECT_TRUE(e.complete);
  EXPECT_FALSE(e.problem.empty()) << "mutant " << static_cast<int>(mutant) << " survived";
  if (problem) {
    EXPECT_EQ(e.problem, problem) << static_cast<int>(mutant) << " " << e.report();
  }
}

}  // namespace sluice::model
