// SPDX-License-Identifier: Apache-2.0
// A guest program that ships a clone of its own. The clone gets the address of its launch record as
// a parameter, and writes to what lies around it what a vGPU that has left would report, again and
// again; then it spins for ever.
//
//   forged-report WHAT      prints one line: "ended ERROR REASON", "answered CURESULT" or "refused
//   REASON"
//     +N, -N  in_flight = 0 and left_generation = the most there is, N bytes from the page of its
//             launch record on
//     words   the same at each address that it gets: record, control block, evict word's copy,
//             left-over list
//     spin    nothing: it does not leave
//     fail    one kernel spins, and a clone in another stream makes no progress until its worker
//             gives the session up: "failed CURESULT", then as above
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "abi/channel.h"
#include "abi/cuda_calls.h"
#include "abi/preempt.h"
#include "abi/wire.h"
#include "guest-agent/transport/channel.h"
#include "mediator/ring/ring.h"

namespace {

using sluice::guest::Channel;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kPauseNs = 1'000'000;  // between two looks at the ring

template <class T>
Bytes raw(const T& v) {
  Bytes out(sizeof v);
  std::memcpy(out.data(), &v, sizeof v);
  return out;
}
Bytes raw(const std::string& s) {
  Bytes out(s.size());
  std::memcpy(out.data(), s.data(), s.size());
  return out;
}
Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A program without a CUDA library: records of its own making.
class Guest {
 public:
  explicit Guest(Channel& channel)
      : channel_(channel),
        producer_(sluice::submit_ring(channel.region(), channel.slot()), channel.bell()),
        consumer_(sluice::complete_ring(channel.region(), channel.slot()), channel.bell()) {}

  // The answer's body. Ends the program when the session does, or when the call fails.
  Bytes call(uint16_t opcode, const Bytes& body, uint64_t context = 0) {
    const uint64_t id = send(opcode, body, context, 0);
    sluice::RecordBuffer buffer;
    for (;;) {
      while (consumer_.pop(buffer) == sluice::Pop::kRecord) {
        if (buffer.completion().call_id != id) continue;
        if (buffer.completion().status != 0 && stays_) {
          std::printf("failed %d\n", buffer.completion().status);
          std::fflush(stdout);
          continue;
        }
        if (buffer.completion().status != 0) {
          std::printf("answered %d\n", buffer.completion().status);
          std::exit(0);
        }
        return {buffer.body().begin(), buffer.body().end()};
      }
      if (channel_.ended() || channel_.hung_up()) {
        const auto why = channel_.end_reason();
        std::printf("ended %d %s\n", why.error, why.reason.c_str());
        std::exit(0);
      }
      channel_.wait(kPauseNs);
    }
  }
  // It does not go when a call fails.
  void stay() { stays_ = true; }
  template <class T>
  T call_for(uint16_t opcode, const Bytes& body, uint64_t context = 0) {
    const Bytes answer = call(opcode, body, context);
    T value{};
    std::memcpy(&value, answer.data(), std::min(answer.size(), sizeof value));
    return value;
  }
  uint64_t send(uint16_t opcode, const Bytes& body, uint64_t context, uint16_t flags) {
    sluice_record r{};
    r.opcode = opcode;
    r.flags = flags;
    r.call_id = ++call_id_;
    r.context = context;
    if (!producer_.push(r, body)) std::exit(3);
    producer_.publish();
    return r.call_id;
  }

 private:
  Channel& channel_;
  sluice::RingProducer producer_;
  sluice::RingConsumer consumer_;
  uint64_t call_id_ = 0;
  bool stays_ = false;
};

const char kHead[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 unused) { ret; }
.visible .entry spin__sluice(.param .u64 unused, .param .align 8 .b8 launch[128])
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<5>;
  .reg .pred %p<2>;
  mov.u32 %r1, 0;
  mov.u32 %r2, 0xffffffff;
AGAIN:
)";
const char kTail[] = R"(
  bra AGAIN;
}
)";

std::string at(int parameter, bool page) {
  return "  ld.param.u64 %rd1, [launch+" + std::to_string(parameter) + "];\n" +
         (page ? "  and.b64 %rd1, %rd1, -4096;\n" : "");
}
std::string store(const char* what, long offset) {
  return "  st.global.u32 [%rd1" + std::string(offset < 0 ? "" : "+") + std::to_string(offset) +
         "], " + what + ";\n";
}

const char kFail[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry loop(.param .u64 unused)
{
AGAIN:
  bra AGAIN;
}
.visible .entry spin(.param .u64 unused) { ret; }
.visible .entry spin__sluice(.param .u64 unused, .param .align 8 .b8 launch[128]) { ret; }
)";

std::string kernel(const std::string& what) {
  if (what == "fail") return kFail;
  std::string body;
  if (what == "words") {
    // As the parts of a launch that is done, or never was.
    for (const size_t parameter :
         {offsetof(sluice_preempt_params, record), offsetof(sluice_preempt_params, control),
          offsetof(sluice_preempt_params, left)}) {
      body += at(static_cast<int>(parameter), false);
      for (int word = 0; word < 16; ++word) body += store(word % 2 ? "%r1" : "%r2", 4 * word);
    }
  } else if (what != "spin") {
    const long from = std::atol(what.c_str());
    body += at(offsetof(sluice_preempt_params, record), true);
    body += store("%r1", from + 4);  // in_flight
    body += store("%r2", from + 8);  // left_generation
  }
  return kHead + body + kTail;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto channel = Channel::join(sluice::guest::socket_path(), "forged-report");
  if (!channel) {
    std::printf("refused %s\n", channel.error().message.c_str());
    return 1;
  }
  Guest guest(**channel);
  using namespace sluice::calls;
  const auto context =
      guest.call_for<uint64_t>(kOpcode_cuDevicePrimaryCtxRetain, raw(uint8_t{1}) + raw(int32_t{0}));
  const std::string text = kernel(argv[1]);
  sluice_module_load load{};
  load.inline_bytes = static_cast<uint32_t>(text.size());
  const auto module =
      guest.call_for<sluice_handle_reply>(SLUICE_CALL_MODULE_LOAD, raw(load) + raw(text), context);
  const auto launch = [&](const char* name, uint32_t flags, uint32_t blocks, uint64_t stream) {
    sluice_function_get get{};
    get.module = module.handle;
    get.flags = flags;
    get.name_bytes = 4;
    const auto function = guest.call_for<sluice_function_reply>(
        SLUICE_CALL_FUNCTION_GET, raw(get) + raw(std::string(name)), context);
    sluice_launch l{};
    l.function = function.handle;
    l.stream = stream;
    l.grid[0] = blocks;
    l.block[0] = 32;
    l.grid[1] = l.grid[2] = l.block[1] = l.block[2] = 1;
    l.param_bytes = 8;
    guest.send(SLUICE_CALL_LAUNCH, raw(l) + raw(uint64_t{0}), context, SLUICE_RECORD_NO_REPLY);
  };
  uint64_t stream = 0;
  if (argv[1] == std::string("fail")) {
    launch("loop", 0, 1, 0);
    stream = guest.call_for<uint64_t>(kOpcode_cuStreamCreate, raw(uint8_t{1}) + raw(uint32_t{1}),
                                      context);
    guest.stay();
  }
  // More than any GPU holds at once: the worker takes the clone.
  launch("spin", SLUICE_FUNCTION_EVICTABLE, 1 << 16, stream);
  std::printf("launched\n");
  std::fflush(stdout);
  guest.call(SLUICE_CALL_SYNCHRONIZE, raw(sluice_synchronize{SLUICE_SYNC_CONTEXT, 0, 0}), context);
  std::printf("answered 0\n");
}
