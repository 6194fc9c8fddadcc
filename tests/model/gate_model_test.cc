// SPDX-License-Identifier: Apache-2.0
// The gate protocol, evict generations and relaunch (abi/stub.h, abi/preempt.h), searched
// exhaustively, with a crash of each party at every step. Properties, see GateModel::violation()
// and goal():
//   - no task starts once its generation was reported to have left, or while another session holds;
//   - no task runs twice, no launch runs before its predecessor is done;
//   - from every reachable state all work can be completed: no stuck launch, no lost wake-up.
// Each mutant leaves out or swaps one step of the protocol, and the search must find what breaks.
#include <gtest/gtest.h>

#include "tests/model/expect_model.h"
#include "tests/model/gate_model.h"

namespace sluice::model {
namespace {

constexpr const char* kStuck = "stuck: from here the work can never be completed";

void expect_ok(const GateModelState& settings) { sluice::model::expect_ok(GateModel(settings)); }

TEST(GateModel, RelaunchAfterEvictions) {
  expect_ok({.launches = {1, 1}, .tasks = {2, 1}, .evictions = 2});
}

TEST(GateModel, EagerLaunchesOfAStream) {
  expect_ok({.launches = {2, 1}, .tasks = {1, 1}, .evictions = 1});
}

TEST(GateModel, OpaqueLaunches) {
  expect_ok({.launches = {2, 1}, .tasks = {1, 1}, .evictions = 1, .opaque = true});
}

TEST(GateModel, TheWorkersOtherOrder) {
  expect_ok({.launches = {2, 1}, .tasks = {1, 1}, .evictions = 1, .left_first = true});
  expect_ok({.launches = {1, 1}, .tasks = {2, 1}, .evictions = 1, .left_first = true});
  expect_ok(
      {.launches = {1, 1}, .tasks = {1, 1}, .evictions = 0, .crashes = 1, .left_first = true});
}

TEST(GateModel, AnIdleHolderStandsBy) {
  expect_ok({.launches = {2, 1}, .tasks = {1, 1}, .evictions = 0, .standby = true});
  expect_ok({.launches = {1, 1},
             .tasks = {1, 1},
             .evictions = 1,
             .opaque = true,
             .left_first = true,
             .standby = true});
  expect_ok({.launches = {1, 1}, .tasks = {1, 1}, .evictions = 0, .kills = 1, .standby = true});
  expect_ok({.launches = {1, 1}, .tasks = {1, 1}, .evictions = 0, .crashes = 1, .standby = true});
}

TEST(GateModel, AWorkerDiesAtAnyStep) {
  expect_ok({.launches = {1, 1}, .tasks = {2, 1}, .evictions = 1, .kills = 1});
}

TEST(GateModel, SluicedCrashesAtAnyStepWithWorkQueued) {
  expect_ok(
      {.launches = {1, 1}, .tasks = {1, 1}, .evictions = 1, .crashes = 1, .queued_at_start = true});
}

TEST(GateModel, SluicedCrashesAtAnyStep) {
  expect_ok({.launches = {1, 1}, .tasks = {2, 1}, .evictions = 1, .crashes = 1});
}

TEST(GateModel, SluicedAndAWorkerCrash) {
  expect_ok({.launches = {1, 1}, .tasks = {1, 1}, .evictions = 0, .kills = 1, .crashes = 1});
}

struct Case {
  GateMutant mutant;
  const char* problem;  // nullptr: any
  GateModelState model;
};

TEST(GateModel, MutantsAreCaught) {
  const GateModelState calm{.launches = {1, 1}, .tasks = {2, 1}, .evictions = 1};
  // No quantum ends, so a missed wake-up is not repaired by chance.
  const GateModelState lazy{.launches = {1, 1}, .tasks = {1, 1}, .evictions = 0};
  const GateModelState chain{.launches = {2, 1}, .tasks = {1, 1}, .evictions = 1};
  const GateModelState opaque{.launches = {1, 1}, .tasks = {1, 1}, .evictions = 1, .opaque = true};
  const GateModelState crash{.launches = {1, 1}, .tasks = {1, 1}, .evictions = 1, .crashes = 1};
  const GateModelState standby{
      .launches = {2, 1}, .tasks = {1, 1}, .evictions = 0, .standby = true};
  const char* not_holding = "a task started in a session that does not hold the GPU";
  const Case cases[] = {
      // With evictable launches the generation alone would catch the first.
      {GateMutant::kGrantReadFirst, not_holding, opaque},
      {GateMutant::kSilentBackOut, kStuck, calm},
      {GateMutant::kEndGrantReadFirst, kStuck, lazy},
      {GateMutant::kNoIdleRing, kStuck, lazy},
      {GateMutant::kInFlightReadFirst, not_holding, calm},
      {GateMutant::kSameGeneration, nullptr, calm},
      {GateMutant::kEngageUnread, kStuck, lazy},
      {GateMutant::kSameFailOpen, nullptr, crash},
      {GateMutant::kControlZeroed, "a task ran twice", calm},
      {GateMutant::kStandbyUnread, kStuck, standby},
      {GateMutant::kStandbySilent, kStuck, standby},
      {GateMutant::kAcceptSilent, kStuck, standby},
      {GateMutant::kNoPredecessor, "a launch ran before its predecessor was done", chain},
  };
  for (const Case& c : cases) {
    GateModelState settings = c.model;
    settings.mutant = c.mutant;
    expect_caught(GateModel(settings), c.mutant, c.problem);
  }
}

}  // namespace
}  // namespace sluice::model
