// SPDX-License-Identifier: Apache-2.0
// A worker for the tests of sluiced: speaks the worker protocol honestly or not at all, and does
// what a test asks for with one-word commands in its slot's submit ring. It knows no CUDA.
//
// SLUICE_FAKE_WORKER says how it starts: "" (well), "mute" (never Ready), "exit" (at once, status
// 3), "refuse" (Ready with code 100 and a text), "twice" (Ready twice).
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "abi/stub.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/io/mapping.h"
#include "mediator/ring/ring.h"
#include "mediator/ring/wait.h"
#include "tests/support/fake_worker.h"

using namespace sluice;
using namespace sluice::worker_protocol;
using sluice::fake::Command;
using sluice::fake::Reply;

namespace {

class Worker {
 public:
  int run() {
    struct {
      Message message;
      Start start;
    } packet;
    auto received = receive_with_fds(kControlFd, &packet, sizeof packet);
    if (received && packet.message.type == Type::kWitness) {
      say(Type::kReady);
      say(Type::kLeaseRequest);  // a witness has no guest
      pause();
    }
    if (!received || received->bytes != sizeof packet || received->fds.size() < kStartFdCount)
      return 90;
    start_ = packet.start;
    fds_ = std::move(received->fds);
    const char* mode_text = std::getenv("SLUICE_FAKE_WORKER");
    const std::string mode = mode_text ? mode_text : "";
    if (mode == "exit") return 3;
    if (mode == "mute") pause();
    if (mode == "refuse") {
      say(Type::kReady, 100, 0, 0, 0, "no device here");
      pause();
    }
    if (!map()) return 91;
    say(Type::kReady);
    if (mode == "twice") say(Type::kReady);
    return serve();
  }

 private:
  bool map() {
    auto region = io::Mapping::map(fds_[kRegionFd].get(), start_.region_bytes, true);
    auto host = io::Mapping::map(fds_[kHostFd].get(), SLUICE_STUB_PAGE_BYTES, false);
    auto report = io::Mapping::map(fds_[kReportFd].get(), SLUICE_REPORT_BYTES, true);
    auto records = io::Mapping::map(fds_[kRecordsFd].get(), SLUICE_RECORDS_BYTES, true);
    if (!region || !host || !report || !records) return false;
    records_ = std::move(*records);
    region_ = std::move(*region);
    host_ = std::move(*host);
    report_ = std::move(*report);
    consumer_ = RingConsumer(submit_ring(region_.data(), start_.slot),
                             Bell::for_eventfd(fds_[kWakeFd].get()));
    producer_ = RingProducer(complete_ring(region_.data(), start_.slot),
                             Bell::for_eventfd(fds_[kWakeFd].get()));
    return true;
  }

  int serve() {
    RecordBuffer buffer;
    for (;;) {
      while (consumer_.pop(buffer) == Pop::kRecord) {
        Command c;
        std::memcpy(&c, buffer.body().data(), sizeof c);
        if (int status = obey(c); status >= 0) return status;
      }
      if (consumer_.broken()) {
        say(Type::kEnded, 999, 0, 0, 0, consumer_.broken_reason());
        return 0;
      }
      if (!consumer_.arm()) continue;
      pollfd wait[] = {{kControlFd, POLLIN, 0}, {fds_[kBellFd].get(), POLLIN, 0}};
      ::poll(wait, 2, -1);
      drain_eventfd(fds_[kBellFd].get());
      consumer_.disarm();
      if (wait[0].revents) {
        Message m;
        auto received = receive_with_fds(kControlFd, &m, sizeof m);
        if (!received || received->bytes == 0) return 92;
        if (m.type == Type::kEnd && !deaf_) return 0;
        if (m.type == Type::kSpin) start_.call_spin_us = static_cast<uint32_t>(m.bytes);
        if (m.type == Type::kLeaseReply || m.type == Type::kExtentReply)
          reply({static_cast<uint64_t>(static_cast<int64_t>(m.code)), m.offset, m.bytes});
      }
    }
  }

  // A status to exit with, or -1.
  int obey(const Command& c) {
    switch (c.what) {
      case fake::kExit:
        return static_cast<int>(c.a);
      case fake::kLease:
        say(Type::kLeaseRequest, static_cast<int>(c.b), 7, 0, c.a);
        break;
      case fake::kUnlease:
        say(Type::kLeaseReturn, static_cast<int>(c.b), 0, 0, c.a);
        break;
      case fake::kExtent:
        say(Type::kExtentRequest, 0, 8, 0, c.a);
        break;
      case fake::kReturnExtent:
        say(Type::kExtentReturn, 0, 0, c.a, c.b);
        break;
      case fake::kEndedWith:
        say(Type::kEnded, static_cast<int32_t>(c.a), 0, 0, 0, "its own fault");
        return 0;
      case fake::kEndedUnread: {
        say(Type::kLeaseRequest, kDeviceMemory, 7, 0, 1);
        pollfd answered{kControlFd, POLLIN, 0};
        ::poll(&answered, 1, -1);
        say(Type::kEnded, static_cast<int32_t>(c.a), 0, 0, 0, "its own fault");
        return 0;
      }
      case fake::kHangUp:
        if (c.a != 0)
          say(Type::kEnded, static_cast<int32_t>(c.a), 0, 0, 0, "its own fault");
        else
          ::close(kControlFd);
        for (;;) pause();
      case fake::kGarbage: {
        const char text[] = "this is no message";
        [[maybe_unused]] auto sent = send_with_fds(kControlFd, text, sizeof text, {});
        break;
      }
      case fake::kPolls:
        reply({start_.call_spin_us, 0, 0});
        break;
      case fake::kDeaf:
        deaf_ = true;
        reply({0, 0, 0});
        break;
      case fake::kWriteHostPage: {
        void* p = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds_[kHostFd].get(), 0);
        void* q = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fds_[kHostFd].get(), 0);
        reply({p == MAP_FAILED ? 0u : 1u,
               ::mprotect(q, 4096, PROT_READ | PROT_WRITE) != 0 ? 0u : 1u, 0});
        break;
      }
      case fake::kOpenFds: {
        uint64_t others = 0;  // besides 0-2, the control socket and what Start brought
        for (int fd = 4; fd < 256; ++fd) others += ::fcntl(fd, F_GETFD) >= 0;
        reply({others - fds_.size(), 0, 0});
        break;
      }
      case fake::kReport: {
        auto& h = *report_.as<sluice_report_header>();
        __atomic_store_n(&h.launches, c.a, __ATOMIC_RELAXED);
        __atomic_store_n(&h.demand, static_cast<uint32_t>(c.b), __ATOMIC_SEQ_CST);
        ring_wake(fds_[kRingFd].get());
        break;
      }
      case fake::kError: {
        auto& h = *report_.as<sluice_report_header>();
        __atomic_store_n(&h.error, c.a, __ATOMIC_RELAXED);
        __atomic_store_n(&h.in_flight, static_cast<uint32_t>(c.b), __ATOMIC_SEQ_CST);
        Bell::for_eventfd(fds_[kRingFd].get()).ring();
        reply({0, 0, 0});
        break;
      }
      case fake::kGrant:
        reply({__atomic_load_n(&host_.as<sluice_host_page>()->grant, __ATOMIC_SEQ_CST), 0, 0});
        break;
      case fake::kRecord: {
        sluice_launch_record& r = records_.as<sluice_launch_records>()->records[c.a];
        r.launch_id = c.a + 1;
        r.opaque = static_cast<uint32_t>(c.a + 1) << 1;
        r.tasks_total = r.tasks_done = 1;
        r.start_ns = 1, r.left_ns = 1'000'000;
        __atomic_store_n(&r.state, uint32_t{SLUICE_LAUNCH_DONE}, __ATOMIC_SEQ_CST);
        reply({0, 0, 0});
        break;
      }
      case fake::kToken:
        token_ = {c.a, c.b};
        break;
      case fake::kShare:
        share(c.a);
        break;
      case fake::kOpenUnread:
        open_unread(c.a);
        break;
      case fake::kRandom:
        say_whatever(c.a, c.b);
        break;
      default:
        break;
    }
    return -1;
  }

  // ---- memory of several programs ----
  using Token = std::array<uint64_t, 2>;
  static ShareKey naming(const Token& token) {
    ShareKey of;
    static_assert(sizeof token == sizeof of.token);
    std::memcpy(of.token, token.data(), sizeof of.token);
    return of;
  }
  void take_token(const Message& from) { std::memcpy(token_.data(), from.text, sizeof token_); }
  void share(uint64_t bytes) {
    say(Type::kShareRequest, 0, 9, 0, bytes);
    Message m;
    auto received = receive_with_fds(kControlFd, &m, sizeof m);
    if (received) take_token(m);
    reply({token_[0], token_[1], received ? received->fds.size() : 0});
  }
  void open_unread(uint64_t times) {
    Message ask{};
    ask.type = Type::kOpenRequest;
    const ShareKey of = naming(token_);
    std::memcpy(ask.text, &of, sizeof of);
    for (uint64_t i = 0; i < times; ++i) (void)send_with_fds(kControlFd, &ask, sizeof ask, {});
    int unread = 1;
    while (::ioctl(kControlFd, SIOCOUTQ, &unread) == 0 && unread > 0) ::usleep(1000);
    Reply got{};
    for (Message m; got.a < times; ++got.a) {
      auto received = receive_with_fds(kControlFd, &m, sizeof m);
      if (!received || received->bytes == 0) break;
      got.b += received->fds.size();
      got.c += m.code == 0;
    }
    reply(got);
  }

  // ---- any messages ----
  template <class T>
  T any_of(std::initializer_list<T> of) {
    return of.begin()[random_() % of.size()];
  }
  // Mostly what there is, so that it gets on, and now and then what there is not.
  Message any_message() {
    Message m{};
    m.type =
        any_of({Type::kLeaseRequest, Type::kLeaseReturn, Type::kExtentRequest, Type::kExtentReturn,
                Type::kShareRequest, Type::kShareEnd, Type::kOpenRequest, Type::kOpenEnd});
    if (random_() % 100 == 0) m.type = static_cast<Type>(random_() % 24);
    m.code = static_cast<int>(random_() % 5);
    if (random_() % 100 == 0) m.code = any_of({-1, INT32_MIN, INT32_MAX, 5});
    m.request = random_();
    const bool extent = m.type == Type::kExtentRequest || m.type == Type::kExtentReturn;
    m.bytes = extent ? uint64_t{2} << 20 : any_of<uint64_t>({0, 1, 1, 4096, 65536});
    m.offset = extent_;
    if (random_() % 50 == 0)
      m.bytes = any_of<uint64_t>({0, 3, 1u << 30, uint64_t{1} << 63, UINT64_MAX, random_()});
    if (random_() % 50 == 0)
      m.offset = any_of<uint64_t>({0, 1, start_.staging_offset, UINT64_MAX, random_()});
    const ShareKey of = naming(random_() % 10 ? token_ : Token{random_(), random_()});
    std::memcpy(m.text, &of, sizeof of);
    return m;
  }
  void say_whatever(uint64_t seed, uint64_t count) {
    random_.seed(seed);
    Token own{};
    for (uint64_t i = 0; i < count; ++i) {
      struct {
        Message message;
        char more[256];
      } packet{any_message(), {}};
      size_t bytes = sizeof packet.message;
      if (random_() % 200 == 0) bytes = any_of<size_t>({0, 1, bytes - 1, bytes + 1, sizeof packet});
      const int fds[] = {fds_[kRegionFd].get(), kControlFd};
      const size_t passed = random_() % 200 == 0 ? 1 + random_() % 2 : 0;
      (void)send_with_fds(kControlFd, &packet, bytes, {fds, passed}, MSG_NOSIGNAL);
      Message m;
      while (random_() % 3 != 0) {
        auto received = receive_with_fds(kControlFd, &m, sizeof m, MSG_DONTWAIT);
        if (!received || received->bytes != sizeof m) break;
        if (m.type == Type::kExtentReply && m.code == 0) extent_ = m.offset;
        if (m.type != Type::kShareReply || m.code != 0) continue;
        take_token(m);
        own = token_;
      }
    }
    reply({own[0], own[1], 0});
  }

  void say(Type type, int code = 0, uint64_t request = 0, uint64_t offset = 0, uint64_t bytes = 0,
           const char* text = "") {
    Message m{};
    m.type = type;
    m.code = code;
    m.request = request;
    m.offset = offset;
    m.bytes = bytes;
    std::strncpy(m.text, text, sizeof m.text - 1);
    [[maybe_unused]] auto sent = send_with_fds(kControlFd, &m, sizeof m, {});
  }
  void reply(const Reply& r) {
    producer_.push(sluice_completion{}, {reinterpret_cast<const std::byte*>(&r), sizeof r});
    producer_.publish();
  }

  Start start_;
  std::vector<Fd> fds_;
  io::Mapping region_, host_, report_, records_;
  RingConsumer consumer_;
  RingProducer producer_;
  bool deaf_ = false;
  Token token_{};
  uint64_t extent_ = 0;
  std::mt19937_64 random_;
};

}  // namespace

int main() { return Worker().run(); }
