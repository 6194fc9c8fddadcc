// SPDX-License-Identifier: Apache-2.0
// A guest that makes any call with values that mean something (tests/support/plausible_calls.h),
// one session after the other, each in a process of its own.
//
//   any-calls FIRST_SEED SESSIONS CALLS
// Prints a line for each session: "ended REASON" or "lived", with how many calls were made and how
// many succeeded. Exit 0; 1: it could not join.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

#include "guest-agent/transport/channel.h"
#include "tests/support/plausible_calls.h"

namespace sluice::test {
namespace {

class ChannelLink {
 public:
  explicit ChannelLink(guest::Channel& channel)
      : channel_(channel),
        producer_(submit_ring(channel.region(), channel.slot()), channel.bell()),
        consumer_(complete_ring(channel.region(), channel.slot()), channel.bell()) {}

  std::optional<PlausibleAnswer> call(uint16_t opcode, std::span<const std::byte> body,
                                      uint64_t context) {
    const uint64_t id = push(opcode, body, context, 0);
    if (opcode == SLUICE_CALL_HOST_FUNC) host_func_ = id;
    const auto end = std::chrono::steady_clock::now() + patience(opcode);
    do {
      take_answers();
      if (const auto it = answers_.find(id); it != answers_.end()) {
        PlausibleAnswer a = std::move(it->second);
        answers_.erase(it);
        return a;
      }
      if (ended()) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } while (std::chrono::steady_clock::now() < end);
    return std::nullopt;
  }
  void post(uint16_t opcode, std::span<const std::byte> body, uint64_t context) {
    if (opcode == SLUICE_CALL_HOST_FUNC_DONE) host_func_.reset();
    push(opcode, body, context, SLUICE_RECORD_NO_REPLY);
  }
  uint64_t staging(uint64_t* bytes) const {
    *bytes = channel_.header().staging_bytes;
    return channel_.header().staging_offset;
  }
  std::byte* bulk(uint64_t offset) { return channel_.region() + offset; }
  bool ended() const { return channel_.ended() || channel_.hung_up(); }
  std::optional<uint64_t> last_host_func() const { return host_func_; }

 private:
  // Some calls are answered when others have been made; NVIDIA's driver takes long for some.
  static std::chrono::milliseconds patience(uint16_t opcode) {
    if (opcode == SLUICE_CALL_HOST_FUNC) return std::chrono::milliseconds(0);
    if (opcode == SLUICE_CALL_MODULE_LOAD) return std::chrono::milliseconds(1000);
    if (opcode == calls::kOpcode_cuDevicePrimaryCtxRetain) return std::chrono::seconds(10);
    return std::chrono::milliseconds(30);
  }

  uint64_t push(uint16_t opcode, std::span<const std::byte> body, uint64_t context,
                uint16_t flags) {
    sluice_record r{};
    r.opcode = opcode;
    r.flags = flags;
    r.call_id = next_id_++;
    r.context = context;
    while (!producer_.push(r, body)) {
      if (producer_.broken() || ended()) return r.call_id;
      producer_.publish();
      take_answers();
      std::this_thread::yield();
    }
    producer_.publish();
    return r.call_id;
  }
  void take_answers() {
    RecordBuffer buffer;
    while (consumer_.pop(buffer) == Pop::kRecord) {
      const auto& c = buffer.completion();
      if (c.call_id == 0) continue;
      answers_[c.call_id] = {c.status, {buffer.body().begin(), buffer.body().end()}};
    }
    channel_.look_for_hang_up();
  }

  guest::Channel& channel_;
  RingProducer producer_;
  RingConsumer consumer_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, PlausibleAnswer> answers_;
  std::optional<uint64_t> host_func_;
};

int session(uint64_t seed, int calls) {
  auto channel = guest::Channel::join(guest::socket_path(), "any-calls");
  if (!channel) {
    std::printf("refused %s\n", channel.error().message.c_str());
    return 1;
  }
  ChannelLink link(**channel);
  auto guest = std::make_unique<PlausibleCalls<ChannelLink>>(link, seed);
  guest->run(calls);
  std::printf("%s, seed %llu: %zu calls, %zu succeeded\n",
              (*channel)->ended() ? ("ended " + (*channel)->end_reason().reason).c_str() : "lived",
              static_cast<unsigned long long>(seed), guest->made(), guest->succeeded());
  return 0;
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const uint64_t first = std::strtoull(argv[1], nullptr, 10);
  for (uint64_t i = 0; i < std::strtoull(argv[2], nullptr, 10); ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int status = sluice::test::session(first + i, std::atoi(argv[3]));
      std::fflush(stdout);
      ::_exit(status);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return 1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 1;
  }
}
