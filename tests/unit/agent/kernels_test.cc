// SPDX-License-Identifier: Apache-2.0
// `sluice-agent kernels`: what is read out of a program's log, and how it is said.
#include "guest-agent/agent/kernels.h"

#include <gtest/gtest.h>

namespace sluice::guest {
namespace {

constexpr char kLog[] =
    "sluice[7]: kernel plain_one: plain\n"
    "sluice[7]: module: its clones are made as it is loaded: it has constants\n"
    "sluice[7]: kernel waits: opaque: has a loop that waits for a value in global memory (line 7), "
    "which no block that can run now may ever write\n"
    "sluice[8]: kernel made_late: launched before its clones are there\n"
    "sluice[8]: kernel made_late: in-order\n"
    "sluice[8]: kernel timed_once: unloaded before its clones are there\n"
    "sluice[8]: kernel sass: opaque: machine code, which runs to its end; build with PTX\n"
    "sluice[8]: kernel fails: no clones: they do not load (218): ptxas says no\n"
    "sluice[8]: kernel asked: prologue: a barrier with a number in a register\n"
    "kernel forged: plain\n"
    "something else: kernel other: plain\n";

TEST(Kernels, OfALog) {
  const auto rows = kernels_of_log(kLog);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_TRUE(rows.at("plain_one").evictable);
  EXPECT_EQ(rows.at("plain_one").mend, "");
  EXPECT_EQ(rows.at("made_late").how, "in-order");
  EXPECT_TRUE(rows.at("asked").evictable) << "one task a block can be evicted";
  EXPECT_FALSE(rows.at("waits").evictable);
  EXPECT_NE(rows.at("waits").mend, "");
  EXPECT_EQ(rows.at("sass").how, "opaque");
  EXPECT_NE(rows.at("sass").mend.find("sluice-run"), std::string::npos);
  EXPECT_EQ(rows.at("fails").why,
            "its clones could not be made: they do not load (218): ptxas says no");
}

TEST(Kernels, TheLastLineCounts) {
  const auto rows = kernels_of_log("sluice[7]: kernel k: opaque: x\nsluice[7]: kernel k: plain");
  EXPECT_TRUE(rows.at("k").evictable);
  EXPECT_TRUE(kernels_of_log("").empty());
  EXPECT_TRUE(kernels_of_log("sluice[7]: kernel \nsluice[7]: kernel : \n").empty());
}

TEST(Kernels, AsTextAndForScripts) {
  const auto rows =
      kernels_of_log("sluice[1]: kernel a: plain\nsluice[1]: kernel b: opaque: it says \"no\"\\\n");
  const std::string text = as_text(rows);
  EXPECT_NE(text.find("2 kernels, 1 can be evicted"), std::string::npos);
  EXPECT_NE(text.find("why: it says \"no\""), std::string::npos);
  EXPECT_NE(as_json(rows).find("\"why\": \"it says \\\"no\\\"\\\\\""), std::string::npos);
}

TEST(Kernels, OfAProgram) {
  const auto found =
      run_for_kernels({"sh", "-c", "echo 'sluice[1]: kernel a: plain' >>\"$SLUICE_LOG\"; exit 41"});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->status, 41);
  EXPECT_EQ(found->kernels.size(), 1u);
  EXPECT_EQ(run_for_kernels({"/no/such/program"})->status, 127);
}

}  // namespace
}  // namespace sluice::guest
