// SPDX-License-Identifier: Apache-2.0
// A trace written by sluiced's own scheduler is one that sluice-sim replays, and says what
// happened.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include "mediator/daemon/scheduling/trace_file.h"
#include "policies/sim/files/trace.h"
#include "policies/sim/metrics.h"

namespace sluice {
namespace {
constexpr uint64_t kMsNs = 1'000'000, kBegin = 5'000'000'000;

struct TempFile {
  std::string path = ::testing::TempDir() + "/sluice-trace-" + std::to_string(::getpid());
  ~TempFile() { ::unlink(path.c_str()); }
  std::string text() const {
    std::ifstream in(path);
    std::ostringstream s;
    s << in.rdbuf();
    return s.str();
  }
};

// Two vGPUs with a session each, workers that obey at once.
struct Host {
  explicit Host(const std::string& path, uint64_t limit = 1 << 20) {
    core::SchedulerConfig c;
    c.policy = "rr";
    c.policy_config.quantum_ns = 2 * kMsNs;
    scheduler = core::Scheduler::make(c, now);
    auto opened = TraceFile::open(path, 4, limit, now);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    trace = std::move(*opened);
    for (const char* name : {"a", "b"}) {
      const policy::VgpuShare share{.weight = name[0] == 'a' ? 300u : 100u, .priority = 0};
      const auto v = scheduler->add_vgpu(now, share, actions);
      trace->share(now, *v, name, share);
      run();
      scheduler->add_session(now, *v, actions);
      run();
      now += kMsNs;
    }
  }
  void run() {
    while (auto a = actions.pop()) {
      switch (a->kind) {
        case core::Action::Kind::kLog:
          trace->event(now, a->event, a->vgpu);
          break;
        case core::Action::Kind::kSetEvict:
          report[a->session].guest_in_flight = 0;
          report[a->session].guest_left_generation = static_cast<uint32_t>(a->word);
          break;
        case core::Action::Kind::kReadReport:
          scheduler->on_report(now, a->session, report[a->session], actions);
          break;
        case core::Action::Kind::kWakeAt:
          wake = a->word;
          break;
        default:
          break;
      }
    }
  }
  void work(core::SessionId s, bool has) {
    report[s].guest_demand = has;
    scheduler->on_report(now, s, report[s], actions);
    run();
  }
  void pass(uint64_t ns) {
    for (const uint64_t end = now + ns; now < end;) {
      now = std::min(end, std::max(wake, now));
      if (wake > now) continue;
      wake = core::kNever;
      scheduler->on_timer(now, actions);
      run();
    }
  }

  uint64_t now = kBegin, wake = core::kNever;
  std::unique_ptr<core::Scheduler> scheduler;
  core::ActionQueue actions;
  std::unique_ptr<TraceFile> trace;
  core::ReportSnapshot report[2];
};

TEST(TraceFile, WhatTheSchedulerDidCanBeReplayed) {
  TempFile file;
  {
    Host h(file.path);
    h.work(0, true);
    h.pass(10 * kMsNs);
    h.trace->slice(h.now, 0, 5 * kMsNs);  // as on time slices
    h.trace->used(h.now, 0, 10 * kMsNs);
    h.trace->used(h.now, 7, kMsNs);  // nobody
    h.work(1, true);
    h.pass(40 * kMsNs);
    h.work(1, false);
    h.pass(5 * kMsNs);
    h.work(0, false);
    h.work(1, true);  // the other is then asked, and found idle
    h.pass(3 * kMsNs);
    h.work(1, false);
    h.work(0, true);
    h.pass(kMsNs);
  }
  EXPECT_NE(file.text().find(R"("event":"slice","vgpu":"a","ns":5000000})"), std::string::npos);
  EXPECT_NE(file.text().find(R"("event":"used","vgpu":"a","ns":10000000})"), std::string::npos);
  auto w = policy::sim::parse_trace(file.text());
  ASSERT_TRUE(w.ok()) << w.error().message << "\n" << file.text();
  EXPECT_EQ(w->gpu.sm_count, 4u);
  ASSERT_EQ(w->vgpus.size(), 2u);
  EXPECT_EQ(w->vgpus[0].name, "a");
  EXPECT_EQ(w->vgpus[0].share.weight, 300u);
  EXPECT_EQ(w->vgpus[1].share.weight, 100u) << "of the first line about it, not of the begin";
  ASSERT_EQ(w->programs[1].offsets_ns.size(), 2u);
  // Under rr each had half of the 40 ms, in turns of 2 ms; b's second time it was alone.
  EXPECT_NEAR(static_cast<double>(w->programs[1].offset_alone_ns[0]), 20e6, 2.1e6);
  EXPECT_NEAR(static_cast<double>(w->programs[1].offset_alone_ns[1]), 3e6, 0.1e6);
  const auto report = policy::sim::evaluate(*w, "wfq", 1);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->mean.ending.unfinished_runs, 0u);
}

TEST(TraceFile, EndsWithAWholeLineAtItsLimit) {
  TempFile file;
  {
    Host h(file.path, 1000);
    h.work(0, true);
    h.work(1, true);
    h.pass(200 * kMsNs);
  }
  const std::string text = file.text();
  EXPECT_LE(text.size(), 1000u);
  EXPECT_GT(text.size(), 800u);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_TRUE(policy::sim::parse_trace(text).ok());
}

// A disk that takes nothing for now, as a pipe that nobody reads: whoever writes the trace goes on.
TEST(TraceFile, ASlowDiskIsNotWaitedFor) {
  TempFile file;
  ASSERT_EQ(::mkfifo(file.path.c_str(), 0600), 0);
  Fd reader(::open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  std::string text;
  constexpr uint64_t kLines = 20'000;  // many times what a pipe takes
  {
    auto trace = std::move(*TraceFile::open(file.path, 4, 64 << 20, kBegin));
    trace->share(kBegin, 0, "a", {.weight = 100, .priority = 0});
    for (uint64_t i = 0; i < kLines; ++i) trace->used(kBegin + i, 0, i);
    trace->flush();
    const auto read_all = [&] {
      char buffer[65536];
      ssize_t n;
      while ((n = ::read(reader.get(), buffer, sizeof buffer)) > 0)
        text.append(buffer, static_cast<size_t>(n));
    };
    const std::string last = "\"ns\":" + std::to_string(kLines - 1) + "}\n";
    while (!text.ends_with(last)) {
      read_all();
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')), kLines + 2);
}

TEST(TraceFile, ADiskThatIsTooSlowEndsIt) {
  TempFile file;
  ASSERT_EQ(::mkfifo(file.path.c_str(), 0600), 0);
  Fd reader(::open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  Fd writer(::open(file.path.c_str(), O_WRONLY | O_CLOEXEC));
  BackgroundFile slow(std::move(writer));
  const std::string block(1 << 20, 'x');
  Result<void> taken;
  size_t blocks = 0;
  for (; taken && blocks < 100; ++blocks) taken = slow.append(block);
  ASSERT_FALSE(taken.ok());
  EXPECT_NE(taken.error().message.find("too slow"), std::string::npos) << taken.error().message;
  EXPECT_LE(blocks, 2 * BackgroundFile::kMostWaitingBytes / block.size() + 2);
  reader.reset();  // what is under way fails, and the file says so from then on
  do taken = slow.append("y");
  while (taken || taken.error().code == EAGAIN);
  EXPECT_EQ(taken.error().code, EPIPE);
}

TEST(TraceFile, IsNotWrittenThroughALink) {
  TempFile file;
  const std::string link = file.path + ".link";
  ASSERT_EQ(::symlink(file.path.c_str(), link.c_str()), 0);
  EXPECT_FALSE(TraceFile::open(link, 1, 1 << 20, 0).ok());
  ::unlink(link.c_str());
  EXPECT_FALSE(TraceFile::open("/no/such/directory/x", 1, 1 << 20, 0).ok());
}

}  // namespace
}  // namespace sluice
