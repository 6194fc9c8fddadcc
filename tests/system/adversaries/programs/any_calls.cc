// SPDX-License-Identifier: Apache-2.0
// A guest that makes any call with values that mean something (tests/support/plausible_calls.h),
// one session after the other, each in a process of its own.
//
//   any-calls FIRST_SEED SESSIONS CALLS [rewrite]
// Prints a line for each session: "ended REASON" or "lived", with how many calls were made and how
// many succeeded. `rewrite`: meanwhile a thread puts random words at random places of the shared
// memory, so that what was right when it was sent is not when it is read. Then some sessions end by
// a signal of their own: "crashed". Exit 0; 1: it could not join.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
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
  // What it called last, the latest first.
  std::string last_calls() const {
    std::string names;
    for (const uint16_t opcode : last_)
      names.append(names.empty() ? "" : ", ").append(calls::call_name(opcode));
    return names;
  }

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
    last_.push_front(opcode);
    if (last_.size() > kLastCalls) last_.pop_back();
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
    channel_.poll_hang_up();
  }

  guest::Channel& channel_;
  RingProducer producer_;
  RingConsumer consumer_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, PlausibleAnswer> answers_;
  static constexpr size_t kLastCalls = 5;
  std::deque<uint16_t> last_;
  std::optional<uint64_t> host_func_;
};

// Random words, where most depends on them more often: the slot's header and its rings' indices,
// what stands at the rings' ends, the memory of copies. An index that is wrong ends a session soon,
// so two of three guests leave the indices alone, and one of those the submit ring's end as well.
class Rewriter {
 public:
  Rewriter(guest::Channel& channel, uint64_t seed)
      : channel_(channel), kind_(seed % 3), random_(seed), thread_([this] { run(); }) {}
  ~Rewriter() {
    over_ = true;
    thread_.join();
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  uint64_t place() {
    const uint64_t slot = SLUICE_SLOT_OFFSET + channel_.slot() * uint64_t{SLUICE_SLOT_STRIDE};
    const auto& header = channel_.header();
    switch (kind_ == 0 ? pick(8) : kind_ == 1 ? 3 + pick(3) : 5 + 2 * pick(2)) {
      case 0:
        return pick(SLUICE_SLOT_OFFSET);
      case 1:
      case 2:
        return slot + pick(sizeof(sluice_slot_header));
      case 3:
      case 4:
        return slot + SLUICE_SUBMIT_DATA +
               (header.submit.head - pick(1024)) % SLUICE_SUBMIT_RING_BYTES;
      case 5:
        return slot + SLUICE_COMPLETE_DATA +
               (header.complete.head - pick(1024)) % SLUICE_COMPLETE_RING_BYTES;
      case 6:
        return slot + pick(SLUICE_SLOT_STRIDE);
      default:
        return header.staging_offset + pick(header.staging_bytes + 1);
    }
  }
  uint64_t word(uint64_t old) {
    switch (pick(6)) {
      case 0:
        return 0;
      case 1:
        return ~0ull;
      case 2:
        return random_();
      case 3:
        return old ^ 1ull << pick(64);
      case 4:
        return old + 32 * (pick(5) - 2);
      default:
        return pick(4096);
    }
  }
  void run() {
    while (!over_) {
      for (uint64_t n = 1ull << pick(kind_ == 1 ? 4 : 12); n-- != 0;) {
        const uint64_t at = place() & ~7ull;
        if (at > channel_.region_bytes() - 8) continue;
        auto* to = reinterpret_cast<uint64_t*>(channel_.region() + at);
        __atomic_store_n(to, word(__atomic_load_n(to, __ATOMIC_RELAXED)), __ATOMIC_RELAXED);
      }
      if (pick(4) == 0) channel_.bell().ring();
      std::this_thread::sleep_for(std::chrono::microseconds(1ull << pick(16)));
    }
  }

  guest::Channel& channel_;
  const uint64_t kind_;
  std::mt19937_64 random_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

int session(uint64_t seed, int calls, bool rewrite) {
  auto channel = guest::Channel::join(guest::socket_path(), "any-calls");
  if (!channel) {
    std::printf("refused %s\n", channel.error().message.c_str());
    return 1;
  }
  ChannelLink link(**channel);
  std::optional<Rewriter> rewriter;
  if (rewrite) rewriter.emplace(**channel, ~seed);
  auto guest = std::make_unique<PlausibleCalls<ChannelLink>>(link, seed);
  guest->run(calls);
  std::printf(
      "%s, seed %llu: %zu calls, %zu succeeded\n",
      !(*channel)->ended() ? "lived"
      : rewrite
          ? "ended"  // whatever the reason is by now
          : ("ended " + (*channel)->end_reason().reason + " after " + link.last_calls()).c_str(),
      static_cast<unsigned long long>(seed), guest->made(), guest->succeeded());
  return 0;
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  const bool rewrite = argc == 5 && std::string_view(argv[4]) == "rewrite";
  if (argc != 4 && !rewrite) return 2;
  const uint64_t first = std::strtoull(argv[1], nullptr, 10);
  for (uint64_t i = 0; i < std::strtoull(argv[2], nullptr, 10); ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (rewrite) ::alarm(6);  // its rings may be full for ever
      const int status = sluice::test::session(first + i, std::atoi(argv[3]), rewrite);
      std::fflush(stdout);
      ::_exit(status);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return 1;
    if (rewrite && WIFSIGNALED(status)) {
      std::printf("crashed, seed %llu: 0 calls, 0 succeeded\n",
                  static_cast<unsigned long long>(first + i));
      std::fflush(stdout);  // or the next child prints it, too
      continue;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 1;
  }
}
