// SPDX-License-Identifier: Apache-2.0
// How a session's SMs change (abi/stub.h), searched exhaustively: no task starts on an SM that
// somebody else was given, none runs twice, and from every state all changes and all work can be
// completed, also beside a launch that never ends by itself. Each mutant leaves out or swaps one
// step, and the search must find what breaks.
#include <gtest/gtest.h>

#include "tests/model/expect_model.h"
#include "tests/model/parts_model.h"

namespace sluice::model {
namespace {

constexpr const char* kStuck = "stuck: from here the work can never be completed";
constexpr const char* kTheirs = "a task started on an SM that is somebody else's";

TEST(PartsModel, LaunchesThatEnd) { expect_ok(PartsModel{.launches = 2, .tasks = 2, .moves = 4}); }
TEST(PartsModel, ALaunchWithoutEnd) {
  expect_ok(PartsModel{.launches = 1, .moves = 6, .endless = true});
}
TEST(PartsModel, EagerLaunchesBehindOneWithoutEnd) {
  expect_ok(PartsModel{.launches = 2, .moves = 4, .endless = true});
}

TEST(PartsModel, LaunchesThatStay) {
  expect_ok(PartsModel{.launches = 2, .tasks = 1, .moves = 3, .keeps = true});
  expect_ok(PartsModel{.launches = 1, .tasks = 2, .moves = 3, .keeps = true});
}
TEST(PartsModel, ALaunchWithoutEndThatStays) {
  expect_ok(PartsModel{.launches = 1, .moves = 4, .endless = true, .keeps = true});
  expect_ok(PartsModel{.launches = 2, .moves = 3, .endless = true, .keeps = true});
}
TEST(PartsModel, TheWorkerDies) {
  expect_ok(PartsModel{.launches = 1, .tasks = 1, .moves = 3, .keeps = true, .worker_crashes = 1});
}
TEST(PartsModel, SluicedDies) {
  expect_ok(PartsModel{.launches = 1, .tasks = 1, .moves = 3, .keeps = true, .sluiced_crashes = 1});
}
TEST(PartsModel, SluicedDiesBesideALaunchWithoutEnd) {
  expect_ok(
      PartsModel{.launches = 1, .moves = 3, .endless = true, .keeps = true, .sluiced_crashes = 1});
}

TEST(PartsModel, MutantsAreCaught) {
  const PartsModel ends{.launches = 2, .tasks = 1, .moves = 4};
  const PartsModel endless{.launches = 2, .moves = 4, .endless = true};
  const PartsModel stays{.launches = 1, .moves = 3, .endless = true, .keeps = true};
  const PartsModel two_stay{.launches = 2, .tasks = 1, .moves = 3, .keeps = true};
  const struct {
    PartsMutant mutant;
    const char* problem;  // nullptr: any
    PartsModel model;
  } cases[] = {
      {PartsMutant::kNoWait, kTheirs, ends},
      {PartsMutant::kInFlightReadFirst, kTheirs, ends},
      {PartsMutant::kSetAfterGrant, kTheirs, endless},
      {PartsMutant::kSameGeneration, nullptr, endless},
      {PartsMutant::kGrantReadFirst, kTheirs, ends},
      {PartsMutant::kSilentEnter, kStuck, endless},
      {PartsMutant::kOlderNotCounted, kTheirs, endless},
      {PartsMutant::kNoLook, kTheirs, stays},
      {PartsMutant::kNoCopy, kTheirs, two_stay},
      {PartsMutant::kLookFirst, kTheirs, stays},
      {PartsMutant::kKeepGrantFirst, kTheirs, stays},
      {PartsMutant::kRecallUnheard, kStuck, stays},
  };
  for (const auto& c : cases) {
    PartsModel m = c.model;
    m.mutant = c.mutant;
    expect_caught(m, c.mutant, c.problem);
  }
}

}  // namespace
}  // namespace sluice::model
