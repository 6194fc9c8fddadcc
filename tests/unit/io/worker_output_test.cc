// SPDX-License-Identifier: Apache-2.0
// WorkerOutput: a worker that writes without end decides neither how often sluiced reads nor how
// long its end takes.
#include "mediator/io/worker_output.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <chrono>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"

namespace sluice::io {
namespace {

class WorkerOutputTest : public ::testing::Test {
 protected:
  WorkerOutputTest() {
    log::init("worker-output-test", log::Level::kInfo);
    log::set_observer([this](log::Level, std::string_view line) { lines_.emplace_back(line); });
    theirs_ = std::move(*output_->open(io_, std::make_shared<PeerThread>(io_)));
  }
  ~WorkerOutputTest() override { log::set_observer(nullptr); }

  bool write(std::string_view text) {
    return ::send(theirs_.get(), text.data(), text.size(), MSG_DONTWAIT) >= 0;
  }
  // Runs the loop and keeps the socket full; how many messages were read meanwhile.
  size_t flood(std::string_view text, std::chrono::milliseconds time) {
    size_t written = 0;
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      while (write(text)) ++written;
      io_.run_one_for(std::chrono::milliseconds(10));
    }
    return written;
  }

  boost::asio::io_context io_;
  std::unique_ptr<WorkerOutput> output_ = std::make_unique<WorkerOutput>();
  Fd theirs_;
  std::vector<std::string> lines_;
};

TEST_F(WorkerOutputTest, ALineWithoutEndIsReadNowAndThen) {
  const uint64_t began_ns = monotonic_ns();
  const size_t written = flood(std::string(4096, 'x'), std::chrono::milliseconds(500));
  const double seconds = 1e-9 * static_cast<double>(monotonic_ns() - began_ns);
  // Those that still lie in the socket: its buffer takes fewer than 200 of this size.
  EXPECT_LE(static_cast<double>(written),
            limits::kWorkerOutputBurst + 1 + 200 + seconds * limits::kWorkerOutputsPerSecond);
  output_->drain();
  ASSERT_FALSE(lines_.empty());
  EXPECT_LT(lines_.front().size(), limits::kWorkerLineBytes + 100);
}

TEST_F(WorkerOutputTest, TheLastWordsAreBounded) {
  const std::string newlines(4096, '\n');
  size_t written = 0;
  while (write(newlines)) ++written;
  ASSERT_GT(written, 1u);
  output_->drain();
  // What is dropped is counted in the last line; one message more than the bound may be read.
  ASSERT_FALSE(lines_.empty());
  EXPECT_LE(lines_.size(), limits::kWorkerLineBurst + 2);
  unsigned long dropped = 0;
  ASSERT_EQ(std::sscanf(lines_.back().c_str(), "worker: %lu lines", &dropped), 1) << lines_.back();
  EXPECT_LE(dropped, limits::kWorkerLastDropped + newlines.size());
}

TEST_F(WorkerOutputTest, WhatIsNoTextIsReplaced) {
  ASSERT_TRUE(write("a\x1b[2J\xff\x9b\t\x7f z\n"));
  output_->drain();
  EXPECT_EQ(lines_, std::vector<std::string>{"worker: a?[2J???? z"});
}

TEST_F(WorkerOutputTest, AllLinesOfAnHonestWorkerAreLogged) {
  for (const char* line : {"one\n", "two\n", "three"}) ASSERT_TRUE(write(line));
  output_->drain();
  EXPECT_EQ(lines_, (std::vector<std::string>{"worker: one", "worker: two", "worker: three"}));
}

}  // namespace
}  // namespace sluice::io
