// SPDX-License-Identifier: Apache-2.0
// A guest program that misbehaves on purpose. It joins a vGPU like any program and then breaks one
// rule of the channel, named by its argument; the system tests look at what the host does.
//
//   hostile-client SCENARIO        prints one line: "ended ERROR REASON", "answered CURESULT",
//   "refused
//                                  REASON" or "silent"; exit 0 unless it could not even join
//   hostile-client --list
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "abi/channel.h"
#include "abi/cuda_calls.h"
#include "abi/wire.h"
#include "guest-agent/transport/channel.h"
#include "mediator/ring/ring.h"

namespace {

using sluice::guest::Channel;

constexpr uint64_t kPauseNs = 1'000'000;  // between two looks at the ring

class Hostile {
 public:
  explicit Hostile(Channel& channel)
      : channel_(channel),
        memory_(sluice::submit_ring(channel.region(), channel.slot())),
        producer_(memory_, channel.bell()),
        consumer_(sluice::complete_ring(channel.region(), channel.slot()), channel.bell()) {}

  sluice_slot_header& header() { return const_cast<sluice_slot_header&>(channel_.header()); }
  sluice_ring& submit() { return *memory_.indices; }
  std::byte* data() { return memory_.data; }
  Channel& channel() { return channel_; }

  // A well-formed record with any opcode and body.
  void send_bytes(uint16_t opcode, const void* body, size_t bytes, uint16_t flags = 0,
                  uint64_t context = 0) {
    sluice_record r{};
    r.opcode = opcode;
    r.flags = flags;
    r.call_id = ++call_id_;
    r.context = context;
    while (!producer_.push(r, {static_cast<const std::byte*>(body), bytes})) {
      if (producer_.broken() || channel_.ended()) return;
      std::this_thread::yield();
    }
    producer_.publish();
  }
  template <class T>
  void send(uint16_t opcode, const T& body, uint16_t flags = 0) {
    send_bytes(opcode, &body, sizeof body, flags);
  }
  // A raw header at the ring's present end, published with whatever length it claims.
  void send_raw(const sluice_record& r, uint64_t advance) {
    uint64_t head = raw_head_ ? raw_head_ : producer_.head();
    std::memcpy(data() + (head & (memory_.bytes - 1)), &r, sizeof r);
    jump(head + advance);
  }
  void jump(uint64_t head) {
    raw_head_ = head;
    __atomic_store_n(&submit().head, head, __ATOMIC_SEQ_CST);
    channel_.bell().ring();
  }

  // The next answer to any call, or the session's end; prints it.
  bool report(int seconds) {
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    sluice::RecordBuffer buffer;
    while (std::chrono::steady_clock::now() < end) {
      if (listen_ && consumer_.pop(buffer) == sluice::Pop::kRecord) {
        std::printf("answered %d\n", buffer.completion().status);
        return true;
      }
      if (channel_.ended() || channel_.hung_up()) {
        auto why = channel_.end_reason();
        std::printf("ended %d %s\n", why.error, why.reason.c_str());
        return true;
      }
      channel_.wait(kPauseNs);
    }
    return false;
  }
  void do_not_listen() { listen_ = false; }

 private:
  Channel& channel_;
  sluice::RingMemory memory_;
  sluice::RingProducer producer_;
  sluice::RingConsumer consumer_;
  uint64_t call_id_ = 0;
  uint64_t raw_head_ = 0;
  bool listen_ = true;
};

sluice_record raw(uint32_t bytes, uint16_t opcode = sluice::calls::kOpcode_cuInit) {
  sluice_record r{};
  r.bytes = bytes;
  r.opcode = opcode;
  r.call_id = 1;
  return r;
}

sluice_copy copy(uint64_t dst, uint64_t src, uint32_t dst_kind, uint32_t src_kind, uint64_t width,
                 uint64_t height = 1) {
  sluice_copy c{};
  c.dst = dst;
  c.src = src;
  c.dst_kind = dst_kind;
  c.src_kind = src_kind;
  c.width = width;
  c.height = height;
  c.dst_pitch = c.src_pitch = width;
  c.wait = 1;
  return c;
}

void random_records(Hostile& h, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> body(64);
  for (int i = 0; i < 3000 && !h.channel().ended(); ++i) {
    for (auto& w : body) w = random() >> (random() % 64);
    bool custom = random() & 1;
    uint16_t opcode = custom ? 0x1000 + random() % 16 : random() % 0x100;
    h.send_bytes(opcode, body.data(), random() % 512, random() & 1, random() % 3 ? 0 : random());
  }
  h.send(sluice::calls::kOpcode_cuInit, uint32_t{0});
}

// Records that are right when they are published and change while they are read.
void changing_records(Hostile& h) {
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    std::mt19937_64 random(7);
    while (!stop) {
      uint64_t at = __atomic_load_n(&h.submit().head, __ATOMIC_RELAXED) - random() % 4096;
      auto* word =
          reinterpret_cast<uint32_t*>(h.data() + ((at & ~3ull) & (SLUICE_SUBMIT_RING_BYTES - 1)));
      __atomic_store_n(word, static_cast<uint32_t>(random() >> (random() % 33)), __ATOMIC_RELAXED);
    }
  });
  sluice_launch launch{};
  launch.grid[0] = launch.grid[1] = launch.grid[2] = 1;
  launch.block[0] = launch.block[1] = launch.block[2] = 1;
  for (int i = 0; i < 20000 && !h.channel().ended(); ++i) h.send(SLUICE_CALL_LAUNCH, launch);
  stop = true;
  changer.join();
}

using Scenario = std::pair<const char*, std::function<void(Hostile&)>>;

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"record-of-0-bytes", [](Hostile& h) { h.send_raw(raw(0), 32); }},
      {"record-of-8-bytes", [](Hostile& h) { h.send_raw(raw(8), 32); }},
      {"record-not-aligned", [](Hostile& h) { h.send_raw(raw(41), 64); }},
      {"record-longer-than-published", [](Hostile& h) { h.send_raw(raw(4096), 32); }},
      {"record-longer-than-allowed",
       [](Hostile& h) { h.send_raw(raw(SLUICE_RECORD_MAX_BYTES + 32), 128 << 10); }},
      {"record-of-4-gib", [](Hostile& h) { h.send_raw(raw(0xffffffe0u), 32); }},
      {"head-not-aligned", [](Hostile& h) { h.jump(33); }},
      {"head-jumps-ahead", [](Hostile& h) { h.jump(1ull << 40); }},
      {"head-beyond-the-ring", [](Hostile& h) { h.jump(SLUICE_SUBMIT_RING_BYTES + 32); }},
      {"head-jumps-back",
       [](Hostile& h) {
         h.do_not_listen();  // to the answers of the calls before the jump
         for (int i = 0; i < 4; ++i) h.send(sluice::calls::kOpcode_cuInit, uint32_t{0});
         usleep(200000);
         h.jump(32);
       }},
      {"unknown-opcode", [](Hostile& h) { h.send(0xfff, uint64_t{0}); }},
      {"unknown-custom-opcode", [](Hostile& h) { h.send(0x1fff, uint64_t{0}); }},
      {"short-arguments", [](Hostile& h) { h.send_bytes(SLUICE_CALL_LAUNCH, nullptr, 0); }},
      {"string-longer-than-record",
       [](Hostile& h) {
         struct {
           uint8_t out;
           char len[4];
           char text[8];
         } b{1, {'\xff', '\xff', '\xff', '\x7f'}, "abc"};
         h.send(sluice::calls::kOpcode_cuDeviceGetByPCIBusId, b);
       }},
      {"forged-context",
       [](Hostile& h) {
         uint64_t bytes = 4096;
         h.send_bytes(sluice::calls::kOpcode_cuMemAlloc_v2, &bytes, 8, 0, 0xdeadbeefcafeull);
       }},
      {"forged-handles",
       [](Hostile& h) {
         sluice_launch l{};
         l.function = SLUICE_HANDLE(SLUICE_HANDLE_FUNCTION, 1, 7);
         l.stream = ~0ull;
         l.grid[0] = l.grid[1] = l.grid[2] = l.block[0] = l.block[1] = l.block[2] = 0xffffffffu;
         l.param_bytes = 0xffffffffu;
         h.send(SLUICE_CALL_LAUNCH, l);
       }},
      {"bulk-outside-the-region",
       [](Hostile& h) {
         h.send(SLUICE_CALL_COPY,
                copy(0x1000, 1ull << 62, SLUICE_COPY_DEVICE, SLUICE_COPY_BULK, 4096));
       }},
      {"bulk-that-overflows",
       [](Hostile& h) {
         h.send(SLUICE_CALL_COPY,
                copy(0x1000, ~0ull - 100, SLUICE_COPY_DEVICE, SLUICE_COPY_BULK, 4096));
       }},
      {"bulk-of-the-control-area",
       [](Hostile& h) {
         h.send(SLUICE_CALL_COPY, copy(0, 4096, SLUICE_COPY_BULK, SLUICE_COPY_BULK, 4096));
       }},
      {"bulk-of-another-session",
       [](Hostile& h) {
         uint64_t mine = h.header().staging_offset;
         h.send(SLUICE_CALL_COPY,
                copy(mine, mine + (64ull << 20), SLUICE_COPY_BULK, SLUICE_COPY_BULK, 4096));
       }},
      {"module-text-outside",
       [](Hostile& h) {
         sluice_module_load m{};
         m.bulk = {1ull << 50, 1ull << 40};
         h.send(SLUICE_CALL_MODULE_LOAD, m);
       }},
      {"module-inline-longer-than-record",
       [](Hostile& h) {
         sluice_module_load m{};
         m.inline_bytes = 0xffffff00u;
         h.send(SLUICE_CALL_MODULE_LOAD, m);
       }},
      {"copy-of-the-workers-memory",
       [](Hostile& h) {
         h.send(SLUICE_CALL_COPY, copy(h.header().staging_offset, 0x400000, SLUICE_COPY_BULK,
                                       SLUICE_COPY_DEVICE, 4096));
       }},
      {"copy-of-the-host-window",
       [](Hostile& h) {
         h.send(SLUICE_CALL_COPY, copy(h.header().staging_offset, SLUICE_WINDOW_ADDRESS,
                                       SLUICE_COPY_BULK, SLUICE_COPY_DEVICE, 4096));
       }},
      {"copy-size-that-overflows",
       [](Hostile& h) {
         h.send(SLUICE_CALL_COPY, copy(h.header().staging_offset, h.header().staging_offset,
                                       SLUICE_COPY_BULK, SLUICE_COPY_BULK, 1ull << 33, 1ull << 33));
       }},
      {"copy-of-unknown-kinds", [](Hostile& h) { h.send(SLUICE_CALL_COPY, copy(0, 0, 7, 9, 64)); }},
      {"memset-of-the-workers-memory",
       [](Hostile& h) {
         sluice_memset m{};
         m.dst = 0x7f0000000000;
         m.width = 1 << 20;
         m.height = 1;
         m.element_bytes = 1;
         m.wait = 1;
         h.send(SLUICE_CALL_MEMSET, m);
       }},
      {"free-of-what-is-not-mine",
       [](Hostile& h) {
         sluice_bulk b{0, 1ull << 30};
         h.send(SLUICE_CALL_EXTENT_FREE, b);
       }},
      {"host-func-done-never-asked",
       [](Hostile& h) { h.send(SLUICE_CALL_HOST_FUNC_DONE, uint64_t{99}); }},
      {"random-records", [](Hostile& h) { random_records(h, 1); }},
      {"random-records-2", [](Hostile& h) { random_records(h, 2); }},
      {"records-that-change", changing_records},
      {"nobody-reads-the-answers",
       [](Hostile& h) {
         h.do_not_listen();
         uint32_t zero = 0;
         for (int i = 0; i < 200000 && !h.channel().ended(); ++i)
           h.send(sluice::calls::kOpcode_cuInit, zero);
       }},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: hostile-client SCENARIO | --list\n");
    return 2;
  }
  if (std::string(argv[1]) == "--list") {
    for (const auto& [name, run] : scenarios()) std::printf("%s\n", name);
    return 0;
  }
  for (const auto& [name, run] : scenarios()) {
    if (std::string(argv[1]) != name) continue;
    auto channel = Channel::join(sluice::guest::socket_path(), "hostile-client");
    if (!channel) {
      std::printf("refused %s\n", channel.error().message.c_str());
      return 1;
    }
    Hostile hostile(**channel);
    run(hostile);
    if (!hostile.report(20)) std::printf("silent\n");
    return 0;
  }
  std::fprintf(stderr, "hostile-client: no scenario '%s'\n", argv[1]);
  return 2;
}
