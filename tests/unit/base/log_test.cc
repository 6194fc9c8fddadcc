// SPDX-License-Identifier: Apache-2.0
// Lines as they are written, and the log of a program that must not wait: a stderr that nobody
// reads, and lines without end.
#include "mediator/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/base/limits.h"

namespace sluice {
namespace {

constexpr uint64_t kPatienceMs = 120'000;

// Each in a process of its own: a log is set up once.
TEST(LogDeathTest, ALineHasTimeProgramProcessAndLevel) {
  EXPECT_EXIT(
      {
        ::unsetenv("JOURNAL_STREAM");
        log::init("test", log::Level::kInfo);
        log::debug("not written");
        log::write(log::Level::kDebug, "nor this");
        log::warning("vgpu {}: a\nb", 'a');
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0),
      "^20[0-9][0-9]-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9][0-9][0-9] "
      "test\\[[0-9]+\\] warning: vgpu a: a\\?b\n$");
}

TEST(LogDeathTest, TheJournalIsToldThePriority) {
  EXPECT_EXIT(
      {
        ::setenv("JOURNAL_STREAM", "1:2", 1);
        log::init("test", log::Level::kInfo);
        log::error("bad");
        log::info("good");
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "^<3>bad\n<6>good\n$");
}

TEST(BackgroundLog, AFullStderrHoldsNobodyUpAndWhatIsDroppedIsCounted) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd reader(ends[0]), writer(ends[1]), before(::dup(2));
  // Full, and its writes wait.
  ASSERT_EQ(::fcntl(writer.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string block(4096, '.');
  size_t filled = 0;
  for (ssize_t n; (n = ::write(writer.get(), block.data(), block.size())) > 0;)
    filled += static_cast<size_t>(n);
  ASSERT_EQ(::fcntl(writer.get(), F_SETFL, 0), 0);
  ASSERT_GE(::dup2(writer.get(), 2), 0);
  writer.reset();

  log::init("test", log::Level::kDebug);
  log::write_in_background();
  size_t seen = 0, suppressed = 0;
  log::set_observer([&](log::Level, std::string_view line) {
    ++seen;
    suppressed += line.find("suppressed") != std::string_view::npos;
  });
  // This test ends only if none of these waits.
  constexpr size_t kFlood = 5000;
  for (size_t i = 0; i < kFlood; ++i) log::warning("vgpu a: line {}", i);
  EXPECT_GE(seen, static_cast<size_t>(limits::kLogBurst));
  EXPECT_LT(seen, kFlood / 2) << "one vGPU's lines are limited";
  for (size_t i = 0; i < 2 * limits::kMaxLogQueue; ++i) log::debug("line {} of many", i);
  EXPECT_FALSE(log::finish(1)) << "nobody reads";

  // Somebody reads after all: what is left comes, with the count of what does not.
  std::string text;
  char piece[4096];
  const std::string last = "line " + std::to_string(2 * limits::kMaxLogQueue - 1) + " of many";
  while (text.find(last) == std::string::npos) {
    const ssize_t n = ::read(reader.get(), piece, sizeof piece);
    ASSERT_GT(n, 0);
    text.append(piece, static_cast<size_t>(n));
  }
  EXPECT_TRUE(log::finish(kPatienceMs));
  EXPECT_GE(text.size(), filled);
  EXPECT_NE(text.find("log lines were dropped here"), std::string::npos);
  ASSERT_GE(::dup2(before.get(), 2), 0);
  log::set_observer({});
}

// Each worker is a beginning of its own. After more than are counted apart, which a guest brings
// about by starting programs, a flood of one must not take the lines of a vGPU that is new.
TEST(BackgroundLog, BeginningsThatAreLongPastMakeRoom) {
  size_t late = 0;
  log::set_observer(
      [&](log::Level, std::string_view line) { late += line.starts_with("vgpu late"); });
  for (size_t i = 0; i < 2 * limits::kMaxLogKeys; ++i) log::info("worker {}: is on", i);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  for (size_t i = 0; late == 0 && std::chrono::steady_clock::now() < end; ++i) {
    for (size_t n = 0; n < 1000; ++n) log::info("worker of a flood {}: line {}", i % 7, n);
    log::info("vgpu late: created");
  }
  EXPECT_GT(late, 0u);
  log::set_observer({});
}

}  // namespace
}  // namespace sluice
