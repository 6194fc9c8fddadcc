// SPDX-License-Identifier: Apache-2.0
// A real sluice-worker on the software GPU, and guests that make any call with values that mean
// something (tests/support/plausible_calls.h), while sluiced takes the GPU from them and gives it
// back. Whatever comes of a call, the worker goes on, or ends the session by itself.
#include "tests/support/plausible_calls.h"

#include <cstdlib>

#include "tests/support/worker_process.h"

namespace sluice::test {
namespace {

// The program's end of a WorkerBench. Some calls are answered when others have been made (a host
// function's stream): those are not waited for.
class BenchLink {
 public:
  explicit BenchLink(WorkerBench& bench) : bench_(bench) {}
  std::optional<PlausibleAnswer> call(uint16_t opcode, std::span<const std::byte> body,
                                      uint64_t context) {
    const uint64_t id = bench_.post(opcode, body, context);
    if (opcode == SLUICE_CALL_HOST_FUNC) host_func_ = id;
    Answer a = bench_.wait(id, opcode == SLUICE_CALL_HOST_FUNC ? 0 : kPatienceMs);
    if (a.status == -1) return std::nullopt;
    return PlausibleAnswer{a.status, std::move(a.body)};
  }
  void post(uint16_t opcode, std::span<const std::byte> body, uint64_t context) {
    if (opcode == SLUICE_CALL_HOST_FUNC_DONE) host_func_.reset();
    bench_.post(opcode, body, context, SLUICE_RECORD_NO_REPLY);
  }
  uint64_t staging(uint64_t* bytes) const {
    *bytes = WorkerBench::kStagingBytes;
    return kStaging;
  }
  std::byte* bulk(uint64_t offset) { return bench_.bulk(offset); }
  bool ended() const { return bench_.ended(); }
  std::optional<uint64_t> last_host_func() const { return host_func_; }

 private:
  static constexpr uint64_t kPatienceMs = 30;
  WorkerBench& bench_;
  std::optional<uint64_t> host_func_;
};

class PlausibleCallsOfAGuest : public WorkerProcess {
 protected:
  void play(WorkerBench::Options options) {
    // By hand: SLUICE_TEST_SEEDS=FIRST,COUNT.
    unsigned first = 1, count = 6;
    if (const char* seeds = std::getenv("SLUICE_TEST_SEEDS"))
      (void)std::sscanf(seeds, "%u,%u", &first, &count);
    options.memory_limit = options.lease_limit = 128u << 20;
    size_t made = 0, succeeded = 0, lived = 0;
    for (unsigned seed = first; seed < first + count; ++seed) {
      SCOPED_TRACE(seed);
      ASSERT_NO_FATAL_FAILURE(start(options));
      BenchLink link(*b);
      PlausibleCalls calls(link, seed);
      calls.run(0);
      for (int round = 0; round < 20 && !b->ended(); ++round) {
        for (int i = 0; i < 20 && !b->ended(); ++i) calls.one();
        round % 2 ? b->grant() : b->take_back();
      }
      made += calls.made();
      succeeded += calls.succeeded();
      if (!b->ended()) {
        ++lived;
        b->end(CUDA_SUCCESS, "the test has ended");
      }
      const int status = b->wait_exit(60000);
      EXPECT_EQ(status, 0) << "what the session was told: " << b->slot->reason;
      EXPECT_LE(b->leased(), options.lease_limit);
    }
    RecordProperty("calls", static_cast<int>(made));
    RecordProperty("succeeded", static_cast<int>(succeeded));
    RecordProperty("sessions_that_lived", static_cast<int>(lived));
    std::printf("%zu calls, %zu succeeded, %zu of %u sessions lived\n", made, succeeded, lived,
                count);
    // Or the calls would mean nothing.
    EXPECT_GT(succeeded, made / 20);
  }
};

TEST_F(PlausibleCallsOfAGuest, NeverCrashItsWorker) { play({}); }

TEST_F(PlausibleCallsOfAGuest, NeverCrashItsWorkerInParts) {
  WorkerBench::Options options;
  options.spatial_sms = 4;
  play(options);
}

}  // namespace
}  // namespace sluice::test
