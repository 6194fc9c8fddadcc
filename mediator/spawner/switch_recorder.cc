// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/switch_recorder.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/spawner_protocol.h"
#include "mediator/gpu/clock_match.h"
#include "mediator/gpu/driver_switch_log.h"
#include "mediator/gpu/switch_ring.h"
#include "mediator/spawner/limits.h"

namespace sluice::spawner {
namespace {

using gpu::DriverSwitchLog;

// The begin of a record stamped before a flush may have been written after it, and the clocks are
// matched to some microseconds.
constexpr uint64_t kMarginNs = 20'000;
constexpr uint64_t kMatchNs = 250'000'000;

struct Answer {
  int32_t error = 0;  // 0: it records
  char why[252] = {};
};

class Recorder {
 public:
  Recorder(std::unique_ptr<DriverSwitchLog> log, gpu::SwitchRingWriter ring, int control)
      : log_(std::move(log)), ring_(std::move(ring)), control_(control) {}

  int ring() const { return ring_.fd(); }

  // Until sluiced has gone, or the driver refuses.
  void run() {
    bool rests = true;
    for (;;) {
      pollfd wait{control_, POLLIN, 0};
      const int ms = rests ? limits::kSwitchLogRestMs : limits::kSwitchLogFlushMs;
      if (::poll(&wait, 1, ms) < 0 && errno != EINTR) return;
      if (wait.revents != 0) {
        char bytes[64];
        const ssize_t n = ::recv(control_, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
        if (n > 0) rests = bytes[n - 1] == spawner_protocol::kSwitchLogRest;
      }
      if (auto recorded = record(); !recorded) return ring_.fail(recorded.error().code);
    }
  }

  Result<void> match_clocks() {
    const uint64_t before = monotonic_ns();
    auto gpu = log_->time_ns();
    const uint64_t after = monotonic_ns();
    if (!gpu) return gpu.error();
    clocks_.measured(before, *gpu, after);
    matched_ns_ = after;
    return {};
  }

 private:
  Result<void> record() {
    if (monotonic_ns() - matched_ns_ > kMatchNs)
      if (auto matched = match_clocks(); !matched) return matched;
    const uint64_t before = monotonic_ns();
    if (auto flushed = log_->flush(); !flushed) return flushed;
    records_.clear();
    auto dropped = log_->read(records_);
    if (!dropped) return dropped.error();
    for (const DriverSwitchLog::Record& r : records_) {
      const auto next = static_cast<uint16_t>(last_seq_ + 1);
      if (seen_ && r.seq != next) ring_.add_lost(static_cast<uint16_t>(r.seq - next));
      seen_ = true;
      last_seq_ = r.seq;
      last_ns_ = std::max(last_ns_, clocks_.host_ns(r.time_ns));
      ring_.add({last_ns_, r.pid, r.start ? 1u : 0u});
    }
    if (*dropped != 0) ring_.add_lost(*dropped);
    ring_.publish(before - kMarginNs);
    return {};
  }

  std::unique_ptr<DriverSwitchLog> log_;
  gpu::SwitchRingWriter ring_;
  gpu::ClockMatch clocks_;
  const int control_;
  std::vector<DriverSwitchLog::Record> records_;
  uint64_t matched_ns_ = 0, last_ns_ = 0;
  uint16_t last_seq_ = 0;
  bool seen_ = false;
};

Result<Recorder> prepare(gpu::DriverDevice& device, int control) {
  auto log = DriverSwitchLog::open(device, limits::kSwitchLogRecords);
  if (!log) return log.error();
  auto ring = gpu::SwitchRingWriter::make();
  if (!ring) return ring.error();
  Recorder recorder(std::move(*log), std::move(*ring), control);
  for (int i = 0; i < limits::kSwitchLogMatches; ++i)
    if (auto matched = recorder.match_clocks(); !matched) return matched.error();
  return recorder;
}

// The child. `answer`: where it says whether it records.
int record(gpu::DriverDevice& device, int answer, int control) {
  auto recorder = prepare(device, control);
  Answer a;
  if (!recorder) {
    a.error = recorder.error().code != 0 ? recorder.error().code : EIO;
    std::strncpy(a.why, recorder.error().message.c_str(), sizeof a.why - 1);
  }
  const int ring = recorder ? recorder->ring() : -1;
  const auto fds = recorder ? std::span<const int>(&ring, 1) : std::span<const int>();
  if (!send_with_fds(answer, &a, sizeof a, fds) || !recorder) return 1;
  ::close(answer);
  recorder->run();
  return 0;
}

}  // namespace

Result<SwitchRecorder> SwitchRecorder::start(gpu::DriverDevice& device) {
  int answers[2], controls[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, answers) != 0)
    return Error::from_errno("socketpair");
  Fd ours(answers[0]), theirs(answers[1]);
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, controls) != 0)
    return Error::from_errno("socketpair");
  Fd sluiceds(controls[0]), recorders(controls[1]);
  const pid_t spawner = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != spawner) ::_exit(1);
    ::prctl(PR_SET_NAME, "sluice-switches");
    // It keeps nothing of what the spawner has: the links to sluiced must end when that does.
    const int low = std::min(theirs.get(), recorders.get()),
              high = std::max(theirs.get(), recorders.get());
    ::close_range(3, static_cast<unsigned>(low - 1), 0);
    if (high - low > 1)
      ::close_range(static_cast<unsigned>(low + 1), static_cast<unsigned>(high - 1), 0);
    ::close_range(static_cast<unsigned>(high + 1), ~0u, 0);
    ::_exit(record(device, theirs.get(), recorders.get()));
  }
  theirs.reset();
  recorders.reset();
  pollfd wait{ours.get(), POLLIN, 0};
  Answer answer;
  if (::poll(&wait, 1, limits::kSwitchLogStartMs) == 1) {
    auto got = receive_with_fds(ours.get(), &answer, sizeof answer);
    if (got && got->bytes == sizeof answer && answer.error == 0 && got->fds.size() == 1)
      return SwitchRecorder(pid, std::move(got->fds[0]), std::move(sluiceds));
    answer.why[sizeof answer.why - 1] = 0;
    ::waitpid(pid, nullptr, 0);  // it has said why, or died
    if (got && got->bytes == sizeof answer && answer.error != 0)
      return Error{answer.error, answer.why};
    return Error{EIO, "the process that reads the log died"};
  }
  ::kill(pid, SIGKILL);  // it may be stuck in the driver: nobody waits for it
  return Error{ETIMEDOUT, "the driver did not answer"};
}

}  // namespace sluice::spawner
