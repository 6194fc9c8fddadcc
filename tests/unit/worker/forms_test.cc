// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU: the forms of a clone beside the loop, one task a block
// and windows.
#include "tests/support/cubins.h"
#include "tests/unit/worker/eviction.h"

namespace sluice::test {
namespace {

class WorkerForms : public WorkerEviction {};

// One task a block, for as long as it takes to leave: launches try both clones and take the faster;
// a kernel that is kept in order begins with this one.
TEST_F(WorkerForms, ChainsOfLaunchesWithOneTaskABlockSurviveEvictions) {
  for (wp::Signal signal : {wp::Signal::kHost, wp::Signal::kProxy, wp::Signal::kWrite}) {
    SCOPED_TRACE(wp::kSignalNames[static_cast<size_t>(signal)]);
    WorkerBench::Options o;
    o.signal = signal;
    o.admission_us = 1'000'000'000;
    chain_under_evictions(std::move(o), 20, SLUICE_FUNCTION_IN_ORDER);
  }
}

TEST_F(WorkerForms, OneTaskABlockIsTakenWhereTheGridMayTakeSoLongToLeave) {
  const auto trap_in_it = [](std::string& text) {
    const size_t at = text.find('{', text.find("add" SLUICE_ONE_TASK_SUFFIX));
    ASSERT_NE(at, text.npos);
    text.insert(at + 1, "\n\ttrap;");
  };
  for (uint32_t us : {0u, 1'000'000'000u}) {
    WorkerBench::Options o;
    o.admission_us = us;
    start(std::move(o));
    make_context();
    make_module(SLUICE_FUNCTION_IN_ORDER, trap_in_it);
    const uint32_t kN = 64 * kGrid;
    launch(kGrid, 64, alloc(kN * 4).as<uint64_t>(), kN, 1);
    EXPECT_EQ(sync().status == CUDA_SUCCESS, us == 0);
  }
}

// In windows of the grid, once it is known how long a task takes.
TEST_F(WorkerForms, ChainsOfLaunchesInWindowsSurviveEvictions) {
  WorkerBench::Options o;
  o.window_us = 1'000'000'000;
  chain_under_evictions(std::move(o), 20, 0, 3);
}

TEST_F(WorkerForms, WindowsAreTakenWhereTheyMayLastSoLong) {
  const auto trap_in_it = [](std::string& text) {
    const size_t at = text.find('{', text.find("add" SLUICE_WINDOW_SUFFIX));
    ASSERT_NE(at, text.npos);
    text.insert(at + 1, "\n\ttrap;");
  };
  for (uint32_t us : {0u, 1'000'000'000u}) {
    WorkerBench::Options o;
    o.window_us = us;
    start(std::move(o));
    make_context();
    make_module(0, trap_in_it);
    const uint32_t kN = 64 * kGrid;
    const uint64_t d = alloc(kN * 4).as<uint64_t>();
    launch(kGrid, 64, d, kN, 1);
    EXPECT_EQ(sync().status, CUDA_SUCCESS);
    launch(kGrid, 64, d, kN, 2);
    EXPECT_EQ(sync().status, us == 0 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
  }
}

// Launches in windows write nothing down: the worker knows that what it has queued has run.
// Which form a launch takes hangs on measured times, and a busy machine may make windows look slow.
// So results and records are checked in every attempt, and one attempt must have taken windows.
TEST_F(WorkerForms, LaunchesInWindowsAreDoneWhetherTimedOrNot) {
  constexpr uint32_t kLaunches = 40, kAttempts = 40;
  const uint32_t kN = 64 * kGrid;
  uint32_t timed = kLaunches;
  for (uint32_t attempt = 0; attempt < kAttempts && timed > kLaunches / 2; ++attempt) {
    SCOPED_TRACE(attempt);
    WorkerBench::Options o;
    o.window_us = 1'000'000'000;
    start(std::move(o));
    make_context();
    // The loop's blocks behind the first, which says when the launch has begun, take long: so
    // windows are taken.
    make_module(0, [](std::string& text) {
      const size_t at = text.find('{', text.find("add" SLUICE_CLONE_SUFFIX));
      ASSERT_NE(at, text.npos);
      text.insert(at + 1,
                  "\n\t.reg .b32 %late;\n\t.reg .pred %until;\n\tmov.u32 %late, %ctaid.x;\n"
                  "\tmin.u32 %late, %late, 1;\n\tmad.lo.u32 %late, %late, 60000, 1;\n"
                  "LATE:\n\tsub.u32 %late, %late, 1;\n"
                  "\tsetp.ne.u32 %until, %late, 0;\n\t@%until bra LATE;");
    });
    const uint64_t d = alloc(kN * 4).as<uint64_t>();
    zero(d, kN * 4);
    uint32_t expected = 0;
    for (uint32_t k = 0; k < kLaunches; ++k) {
      launch(kGrid, 64, d, kN, k);
      // Alone, and behind others that may not be done.
      if (k < 8 || k % 4 == 0) {
        ASSERT_EQ(sync().status, CUDA_SUCCESS);
      }
      expected = advance(expected, k, kRounds);
    }
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
    const uint32_t* got = words(d, kN * 4);
    for (uint32_t i : {0u, kN / 2, kN - 1}) EXPECT_EQ(got[i], expected);
    uint32_t done = 0;
    timed = 0;
    for (const sluice_launch_record& r : b->report->records) {
      if (r.launch_id == 0) continue;
      EXPECT_EQ(r.state, static_cast<uint32_t>(SLUICE_LAUNCH_DONE));
      EXPECT_EQ(r.tasks_done, r.tasks_total);
      const sluice_launch_shape& shape = b->report->shapes[&r - b->report->records];
      EXPECT_EQ(shape.block_threads, 64u);
      EXPECT_EQ(shape.input_bytes, kN * 4u);
      ++done;
      timed += r.start_ns != 0 && r.left_ns != 0;  // not in windows: nothing in them says so
    }
    EXPECT_EQ(done, kLaunches);
    EXPECT_GE(timed, 1u) << "the first one, in a loop";
  }
  EXPECT_LE(timed, kLaunches / 2);
}

// ---- clones that come later, in a module of their own ----

class WorkerLaterClones : public WorkerForms {
 protected:
  // The original alone as the module, and its clones as another.
  void load_both(const std::function<void(std::string&)>& edit = {}) {
    start(WorkerBench::Options{});
    make_context();
    const Answer original = load(kPtx);
    ASSERT_EQ(original.status, CUDA_SUCCESS);
    module = original.as<uint64_t>();
    add = function("add", 0);
    auto rewritten = passes::rewrite_module(std::string(kPtx));
    ASSERT_TRUE(rewritten.ok());
    if (edit) edit(rewritten->text);
    const Answer clones = load(rewritten->text);
    ASSERT_EQ(clones.status, CUDA_SUCCESS);
    clones_ = clones.as<uint64_t>();
  }
  int32_t give(uint64_t to, uint64_t from, uint32_t flags = SLUICE_FUNCTION_EVICTABLE) {
    const sluice_function_clones c{to, from, flags, 0, 0, 0};
    return b->wait(b->post(SLUICE_CALL_FUNCTION_CLONES, c, context)).status;
  }
  // The same with what the clones' array of addresses is to hold.
  uint64_t post_with_addresses(const std::vector<uint64_t>& addresses, uint32_t bytes) {
    const sluice_function_clones c{add, clones_, SLUICE_FUNCTION_EVICTABLE, 0, bytes, 0};
    std::vector<std::byte> body(sizeof c + addresses.size() * sizeof addresses[0]);
    std::memcpy(body.data(), &c, sizeof c);
    std::memcpy(body.data() + sizeof c, addresses.data(), body.size() - sizeof c);
    return b->post(SLUICE_CALL_FUNCTION_CLONES, body, context);
  }
  int32_t give_addresses(const std::vector<uint64_t>& addresses) {
    const auto bytes = static_cast<uint32_t>(addresses.size() * sizeof addresses[0]);
    return b->wait(post_with_addresses(addresses, bytes)).status;
  }
  // Clones that look for 0x1234 in the second place of an array of two.
  static void look_for_addresses(std::string& text) {
    for (const char* clone : {"add" SLUICE_CLONE_SUFFIX "(", "add" SLUICE_ONE_TASK_SUFFIX "(",
                              "add" SLUICE_WINDOW_SUFFIX "("}) {
      const size_t at = text.find('{', text.find(clone));
      ASSERT_NE(at, text.npos) << clone;
      text.insert(at + 1,
                  "\n.reg .pred %other;\n.reg .b64 %held;\n"
                  "ld.const.b64 %held, [" SLUICE_ADDRESS_ARRAY
                  "+8];\n"
                  "setp.ne.b64 %other, %held, 0x1234;\n@%other trap;\n");
    }
    text.insert(text.find('\n', text.find(".address_size")),
                "\n.visible .const .align 8 .b64 " SLUICE_ADDRESS_ARRAY "[2];\n");
  }
  int32_t unload(uint64_t which) {
    return generic(kOpcode_cuModuleUnload, {raw(which)}, context).status;
  }
  uint64_t clones_ = 0;
};

TEST_F(WorkerLaterClones, LaunchesTakeThemFromThenOn) {
  load_both([](std::string& text) {
    for (const char* clone : {"add" SLUICE_CLONE_SUFFIX "(", "add" SLUICE_ONE_TASK_SUFFIX "(",
                              "add" SLUICE_WINDOW_SUFFIX "("}) {
      const size_t at = text.find('{', text.find(clone));
      ASSERT_NE(at, text.npos) << clone;
      text.insert(at + 1, "\n\ttrap;");
    }
  });
  const uint32_t kN = 64 * kGrid;
  const uint64_t d = alloc(kN * 4).as<uint64_t>();
  launch(kGrid, 64, d, kN, 1);
  EXPECT_EQ(sync().status, CUDA_SUCCESS) << "the original";
  ASSERT_EQ(give(add, clones_), CUDA_SUCCESS);
  launch(kGrid, 64, d, kN, 1);
  EXPECT_EQ(sync().status, CUDA_ERROR_LAUNCH_FAILED) << "a clone";
}

TEST_F(WorkerLaterClones, TheirArrayHoldsTheAddresses) {
  for (const uint64_t held : {0x1234, 0x1235}) {
    load_both(look_for_addresses);
    ASSERT_EQ(give_addresses({7, held}), CUDA_SUCCESS);
    const uint32_t kN = 64 * kGrid;
    const uint64_t d = alloc(kN * 4).as<uint64_t>();
    launch(kGrid, 64, d, kN, 1);
    EXPECT_EQ(sync().status, held == 0x1234 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
  }
}

TEST_F(WorkerLaterClones, MoreAddressesThanTheArrayHoldsAreRefused) {
  load_both(look_for_addresses);
  EXPECT_EQ(give_addresses({1}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(give_addresses({1, 2, 3}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(unload(clones_), CUDA_SUCCESS) << "is still a module";
  const Answer without = load(passes::rewrite_module(std::string(kPtx))->text);
  ASSERT_EQ(without.status, CUDA_SUCCESS);
  clones_ = without.as<uint64_t>();
  EXPECT_EQ(give_addresses({1}), CUDA_ERROR_NOT_FOUND) << "no array";
  EXPECT_EQ(give_addresses({}), CUDA_SUCCESS);
}

TEST_F(WorkerLaterClones, APartOfAnAddressEndsTheSession) {
  load_both(look_for_addresses);
  post_with_addresses({1, 2}, 12);
  expect_violation("addresses");
}

TEST_F(WorkerLaterClones, TheirModuleIsThenAPartOfTheOther) {
  load_both();
  ASSERT_EQ(give(add, clones_), CUDA_SUCCESS);
  EXPECT_EQ(unload(clones_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(give(add, clones_), CUDA_ERROR_INVALID_HANDLE);
  const uint32_t kN = 64 * kGrid;
  const uint64_t d = alloc(kN * 4).as<uint64_t>();
  launch(kGrid, 64, d, kN, 1);
  EXPECT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_EQ(unload(module), CUDA_SUCCESS);
  // What both were charged is free again: modules go in and out as often as one likes.
  for (int i = 0; i < 3; ++i) {
    const Answer again = load(kPtx);
    ASSERT_EQ(again.status, CUDA_SUCCESS);
    EXPECT_EQ(unload(again.as<uint64_t>()), CUDA_SUCCESS);
  }
}

TEST_F(WorkerLaterClones, WhatIsNoKernelsClonesIsRefused) {
  load_both();
  EXPECT_EQ(give(add + 1, clones_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(give(add, clones_ + 1), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(give(clones_, add), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(give(add, module), CUDA_ERROR_INVALID_VALUE) << "its own module";
  EXPECT_EQ(give(add, clones_, 0), CUDA_ERROR_INVALID_VALUE) << "not evictable";
  const Answer none = load(kPtx);
  ASSERT_EQ(none.status, CUDA_SUCCESS);
  EXPECT_EQ(give(add, none.as<uint64_t>()), CUDA_ERROR_NOT_FOUND) << "a module without clones";
  EXPECT_EQ(unload(none.as<uint64_t>()), CUDA_SUCCESS) << "is still a module";
  ASSERT_EQ(give(add, clones_), CUDA_SUCCESS);
  const Answer more = load(passes::rewrite_module(std::string(kPtx))->text);
  ASSERT_EQ(more.status, CUDA_SUCCESS);
  EXPECT_EQ(give(add, more.as<uint64_t>()), CUDA_ERROR_INVALID_VALUE) << "it has some";
}

// ---- forms that come one after the other, without the original ----

class WorkerFormsApart : public WorkerLaterClones {
 protected:
  static constexpr uint32_t kFirst = SLUICE_FUNCTION_EVICTABLE | SLUICE_FUNCTION_OTHERS_LATER,
                            kOthers = SLUICE_FUNCTION_EVICTABLE | SLUICE_FUNCTION_OTHER_FORMS;
  void load_original(WorkerBench::Options options = {}) {
    start(std::move(options));
    make_context();
    const Answer original = load(kPtx);
    ASSERT_EQ(original.status, CUDA_SUCCESS);
    module = original.as<uint64_t>();
    add = function("add", 0);
  }
  // The handle of a module with these forms alone; `trapped`: the clone that ends in a trap.
  uint64_t load_alone(passes::Forms forms, const std::string& trapped = "") {
    passes::RewriteOptions options;
    options.alone = true;
    options.forms = forms;
    auto made = passes::rewrite_module(std::string(kPtx), options);
    EXPECT_TRUE(made.ok());
    if (!trapped.empty()) {
      const size_t at = made->text.find('{', made->text.find(trapped + "("));
      EXPECT_NE(at, std::string::npos);
      made->text.insert(at + 1, "\n\ttrap;");
    }
    const Answer loaded = load(made->text);
    EXPECT_EQ(loaded.status, CUDA_SUCCESS);
    return loaded.as<uint64_t>();
  }
  bool wanted() {
    return __atomic_load_n(&b->slot->wanted_clones[add % SLUICE_WANTED_CLONES], __ATOMIC_RELAXED) ==
           add;
  }
};

TEST_F(WorkerFormsApart, TheFirstIsLaunchedAndTheOthersAreWantedOnceItHasRunLong) {
  WorkerBench::Options o;
  o.window_us = 1'000'000'000;
  load_original(std::move(o));
  ASSERT_EQ(give(add, load_alone(passes::Forms::kFirst), kFirst), CUDA_SUCCESS);
  const uint32_t kN = 64 * kGrid;
  const uint64_t d = alloc(kN * 4).as<uint64_t>();
  zero(d, kN * 4);
  uint32_t expected = 0, k = 0;
  EXPECT_FALSE(wanted());
  for (; k < 100'000 && !wanted(); ++k) {
    launch(kGrid, 64, d, kN, k);
    expected = advance(expected, k, kRounds);
    ASSERT_EQ(sync().status, CUDA_SUCCESS);
  }
  EXPECT_GT(k, 1u) << "nothing is known of a kernel that has not run";
  ASSERT_TRUE(wanted());
  const uint32_t* got = words(d, kN * 4);
  for (uint32_t i : {0u, kN / 2, kN - 1}) EXPECT_EQ(got[i], expected);
  // The next launch tries what nobody has tried.
  ASSERT_EQ(give(add, load_alone(passes::Forms::kOthers, "add" SLUICE_WINDOW_SUFFIX), kOthers),
            CUDA_SUCCESS);
  launch(kGrid, 64, d, kN, k);
  EXPECT_EQ(sync().status, CUDA_ERROR_LAUNCH_FAILED) << "windows";
}

TEST_F(WorkerFormsApart, WhoHasOthersUnaskedIsNotAskedForThem) {
  WorkerBench::Options o;
  o.window_us = 1'000'000'000;
  load_original(std::move(o));
  ASSERT_EQ(give(add, load_alone(passes::Forms::kFirst, "add" SLUICE_CLONE_SUFFIX), kFirst),
            CUDA_SUCCESS);
  ASSERT_EQ(give(add, load_alone(passes::Forms::kOthers), kOthers), CUDA_SUCCESS);
  const uint32_t kN = 64 * kGrid;
  launch(kGrid, 64, alloc(kN * 4).as<uint64_t>(), kN, 1);
  EXPECT_EQ(sync().status, CUDA_ERROR_LAUNCH_FAILED) << "the first stays as it was";
  EXPECT_FALSE(wanted());
}

TEST_F(WorkerFormsApart, WhatComesInTheWrongOrderIsRefused) {
  load_original();
  const uint64_t first = load_alone(passes::Forms::kFirst),
                 others = load_alone(passes::Forms::kOthers);
  EXPECT_EQ(give(add, others, kOthers), CUDA_ERROR_INVALID_VALUE) << "no first form";
  EXPECT_EQ(give(add, others, SLUICE_FUNCTION_EVICTABLE), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(give(add, first, SLUICE_FUNCTION_EVICTABLE), CUDA_SUCCESS);
  EXPECT_EQ(give(add, others, kOthers), CUDA_ERROR_INVALID_VALUE) << "it said that this is all";
  EXPECT_EQ(unload(module), CUDA_SUCCESS);

  const Answer again = load(kPtx);
  ASSERT_EQ(again.status, CUDA_SUCCESS);
  module = again.as<uint64_t>();
  add = function("add", 0);
  ASSERT_EQ(give(add, load_alone(passes::Forms::kFirst), kFirst), CUDA_SUCCESS);
  EXPECT_EQ(give(add, load_alone(passes::Forms::kFirst), kOthers), CUDA_ERROR_NOT_FOUND)
      << "the first form again";
  ASSERT_EQ(give(add, others, kOthers), CUDA_SUCCESS);
  EXPECT_EQ(give(add, load_alone(passes::Forms::kOthers), kOthers), CUDA_ERROR_INVALID_VALUE)
      << "it has them";
  EXPECT_EQ(unload(others), CUDA_ERROR_INVALID_HANDLE) << "a part of the other";
  EXPECT_EQ(unload(module), CUDA_SUCCESS);
}

TEST_F(WorkerFormsApart, ChainsOfLaunchesSurviveEvictionsWhileTheyCome) {
  WorkerBench::Options o;
  o.window_us = 1'000'000'000;
  load_original(std::move(o));
  ASSERT_EQ(give(add, load_alone(passes::Forms::kFirst), kFirst), CUDA_SUCCESS);
  const uint32_t kN = 64 * kGrid;
  const uint64_t d = alloc(kN * 4).as<uint64_t>();
  zero(d, kN * 4);
  uint32_t expected = 0, k = 0;
  for (uint32_t batch = 0; batch < 50 && (batch < 4 || b->report->header.evictions == 0); ++batch) {
    for (uint32_t n = 0; n < 10; ++n, ++k) {
      launch(kGrid, 64, d, kN, k);
      expected = advance(expected, k, kRounds);
    }
    b->take_back();
    if (batch == 2) {  // while they are queued
      const uint64_t others = load_alone(passes::Forms::kOthers);
      ASSERT_EQ(give(add, others, kOthers), CUDA_SUCCESS);
    }
    ASSERT_TRUE(b->wait_left());
    b->grant();
    if (batch % 2 == 1) {
      ASSERT_EQ(sync().status, CUDA_SUCCESS);
    }
  }
  ASSERT_EQ(sync().status, CUDA_SUCCESS);
  EXPECT_GT(b->report->header.evictions, 0u);
  const uint32_t* got = words(d, kN * 4);
  for (uint32_t i : {0u, kN / 2, kN - 1}) EXPECT_EQ(got[i], expected);
}

// Of machine code nobody can read what it is, nor what it would write.
TEST_F(WorkerLaterClones, MachineCodeIsNoClone) {
  load_both();
  const std::string text = passes::rewrite_module(std::string(kPtx))->text;
  const Answer code = load(CubinBuilder().kernel("add", {{0, 8}}).ptx(text).image());
  ASSERT_EQ(code.status, CUDA_SUCCESS);
  EXPECT_EQ(give(add, code.as<uint64_t>()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(give(add, clones_), CUDA_SUCCESS);
}

// The driver reads as many bytes for each parameter as the clone says.
TEST_F(WorkerLaterClones, ClonesWithOtherParametersAreNotTaken) {
  load_both([](std::string& text) {
    for (size_t at;
         (at = text.find("[" + std::to_string(SLUICE_PREEMPT_PARAMS_BYTES) + "]")) != text.npos;)
      text.replace(at, text.find(']', at) - at + 1, "[4096]");
  });
  EXPECT_EQ(give(add, clones_), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace sluice::test
