// SPDX-License-Identifier: Apache-2.0
// WorkerBench: a real sluice-worker process on the software GPU, with the test playing sluiced
// (gate, leases, extents) and the guest's program (records and completions). Used by tests only,
// from one thread; a second one inside answers the worker's control socket.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "abi/cuda_calls.h"
#include "abi/stub.h"
#include "mediator/base/check.h"
#include "mediator/base/clock.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/sm_set.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/ring/ring.h"
#include "mediator/ring/wait.h"

namespace sluice::test {

namespace wp = worker_protocol;

struct Answer {
  int32_t status = -1;
  uint16_t opcode = 0;
  std::vector<std::byte> body;
  template <class T>
  T as(size_t at = 0) const {
    T value{};
    if (at + sizeof value <= body.size()) std::memcpy(&value, body.data() + at, sizeof value);
    return value;
  }
};

class WorkerBench {
 public:
  static constexpr uint64_t kRegion = 64u << 20;
  static constexpr uint64_t kStaging = 8u << 20;
  static constexpr uint64_t kStagingBytes = 16u << 20;
  static constexpr uint64_t kExtents = kStaging + kStagingBytes;

  // What the worker writes, in two memory objects.
  struct Report {
    sluice_report_header& header;
    sluice_launch_record (&records)[SLUICE_REPORT_RECORDS];
    const sluice_launch_shape (&shapes)[SLUICE_REPORT_RECORDS];
  };
  struct Options {
    uint64_t memory_limit = 1u << 30;
    uint64_t lease_limit = 1u << 30;
    uint64_t context_places = 64;
    uint64_t host_limit = 1u << 30;
    uint64_t context_bytes = 0;   // that each context is charged
    bool refuse_modules = false;  // their loading is paced, and never allowed
    std::string soft_gpu_file;
    std::vector<std::string> environment;
    bool open = true;  // the gate, from the start
    bool nvidia = false;
    wp::Signal signal = wp::Signal::kHost;
    uint32_t fixed_chunk = 0;
    uint32_t admission_us = 0;
    uint32_t window_us = 0;
    uint32_t turn_whole_us = 0;  // with turns by priority; 0: without
    uint32_t spatial_sms = 0;
    bool green = false;  // green contexts, where the driver has them
  };

  WorkerBench(const char* worker, const char* library, Options options)
      : options_(std::move(options)) {
    region_fd_ = take(make_memfd("region", kRegion));
    region_ = map<std::byte>(region_fd_, kRegion);
    host_fd_ = take(make_memfd("host", SLUICE_STUB_PAGE_BYTES));
    signal_fd_ = take(make_memfd("signal", SLUICE_STUB_PAGE_BYTES));
    report_fd_ = take(make_memfd("report", SLUICE_REPORT_BYTES));
    records_fd_ = take(make_memfd("records", SLUICE_RECORDS_BYTES));
    host = map<sluice_host_page>(host_fd_, SLUICE_STUB_PAGE_BYTES);
    signal = map<sluice_signal_page>(signal_fd_, SLUICE_STUB_PAGE_BYTES);
    auto* const area = map<sluice_launch_records>(records_fd_, SLUICE_RECORDS_BYTES);
    report_.emplace(Report{*map<sluice_report_header>(report_fd_, SLUICE_REPORT_BYTES),
                           area->records, area->shapes});
    report = &*report_;
    for (Fd* fd : {&bell_, &wake_}) *fd = take(make_eventfd());
    for (WakePair* pair : {&gate_, &ring_}) {
      auto made = make_wake_pair();
      SLUICE_CHECK(made.ok());
      *pair = std::move(*made);
    }
    slot = reinterpret_cast<sluice_slot_header*>(region_ + SLUICE_SLOT_OFFSET);
    slot->state = SLUICE_SLOT_OPEN;
    slot->epoch = 1;
    slot->staging_offset = kStaging;
    slot->staging_bytes = kStagingBytes;
    submit_ = RingProducer(submit_ring(region_, 0), Bell::for_eventfd(bell_.get()));
    complete_ = RingConsumer(complete_ring(region_, 0), Bell::for_eventfd(bell_.get()));

    int pair[2];
    SLUICE_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    control_.reset(pair[0]);
    beat();
    if (options_.open) grant();
    pid_ = ::fork();
    SLUICE_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a worker outlives its mediator; a test's must not
      if (pair[1] == wp::kControlFd) ::fcntl(pair[1], F_SETFD, 0);
      ::dup2(pair[1], wp::kControlFd);
      for (const auto& e : options_.environment) ::putenv(::strdup(e.c_str()));
      ::execl(worker, worker, nullptr);
      ::_exit(127);
    }
    ::close(pair[1]);
    struct {
      wp::Message message{wp::Type::kStart};
      wp::Start start;
    } packet;
    packet.start.region_bytes = kRegion;
    packet.start.epoch = 1;
    packet.start.nvidia = options_.nvidia;
    packet.start.signal = options_.signal;
    packet.start.fixed_chunk = options_.fixed_chunk;
    packet.start.admission_us = options_.admission_us;
    packet.start.window_us = options_.window_us;
    packet.start.turns_by_priority = options_.turn_whole_us != 0;
    packet.start.turn_whole_us = options_.turn_whole_us;
    packet.start.spatial_sms = options_.spatial_sms;
    packet.start.green_contexts = options_.green;
    packet.start.staging_offset = kStaging;
    packet.start.staging_bytes = kStagingBytes;
    packet.start.memory_limit_bytes = options_.memory_limit;
    packet.start.host_memory_bytes = options_.host_limit;
    if (options_.refuse_modules) packet.start.paced = wp::kPacedModules;
    packet.start.context_bytes = options_.context_bytes;
    std::strncpy(packet.start.library, library, sizeof packet.start.library - 1);
    std::strncpy(packet.start.soft_gpu_file, options_.soft_gpu_file.c_str(),
                 sizeof packet.start.soft_gpu_file - 1);
    std::strncpy(packet.start.vgpu, "test", sizeof packet.start.vgpu - 1);
    const int fds[] = {region_fd_.get(),  bell_.get(),        wake_.get(),
                       host_fd_.get(),    signal_fd_.get(),   report_fd_.get(),
                       records_fd_.get(), gate_.theirs.get(), ring_.theirs.get()};
    auto sent = send_with_fds(control_.get(), &packet, sizeof packet, fds);
    SLUICE_CHECK(sent.ok());
    auto got = receive_with_fds(control_.get(), &ready, sizeof ready);
    if (!got || got->bytes != sizeof ready) ready.code = EPIPE;
    thread_ = std::thread([this] { serve(); });
  }
  ~WorkerBench() {
    stop_ = true;
    thread_.join();
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  // --- sluiced ---
  void grant() {
    ++generation;
    __atomic_store_n(&host->grant, generation | SLUICE_GRANT_OPEN, __ATOMIC_SEQ_CST);
    wake_gate();
  }
  // The gate opens for some SMs, or stays open while they change: then `leave` is what the older
  // generations have to leave, and with `keep` they stay on the others. An empty `leave` with
  // `keep`: they need not leave anything.
  void grant_part(const SmSet& sms, bool recall = false, bool keep = false,
                  SmSet::Range leave = {0, 0xffff}) {
    const uint32_t old = generation++;
    for (uint32_t i = 0; i < SmSet::kWords; ++i)
      __atomic_store_n(&host->sms[generation & 1][i], sms.word(i), __ATOMIC_SEQ_CST);
    if (keep && leave.lo < leave.hi)
      __atomic_store_n(&signal->evict, SLUICE_EVICT_WORD(old, leave.lo, leave.hi),
                       __ATOMIC_SEQ_CST);
    __atomic_store_n(&host->grant,
                     generation | SLUICE_GRANT_OPEN | SLUICE_GRANT_PART |
                         (recall ? SLUICE_GRANT_RECALL : 0) | (keep ? SLUICE_GRANT_KEEP : 0),
                     __ATOMIC_SEQ_CST);
    if (recall && !keep && leave.lo < leave.hi)
      __atomic_store_n(&signal->evict, SLUICE_EVICT_WORD(old, leave.lo, leave.hi),
                       __ATOMIC_SEQ_CST);
    wake_gate();
  }
  // What is older has left, or asks to be called back whole, which is then done. False: not in
  // time.
  bool wait_moved(uint64_t ms = 20000) {
    const uint64_t end = monotonic_ns() + ms * 1'000'000, old = generation - 1;
    bool whole = false;
    for (;;) {
      if (__atomic_load_n(&report->header.in_flight, __ATOMIC_SEQ_CST) == 0 ||
          __atomic_load_n(&report->header.left_generation, __ATOMIC_ACQUIRE) >= old)
        return true;
      if (!whole && __atomic_load_n(&report->header.recall, __ATOMIC_SEQ_CST) >= old) {
        whole = true;
        ++called_back_whole;
        __atomic_store_n(&signal->evict, SLUICE_EVICT_ALL_SMS(old), __ATOMIC_SEQ_CST);
        wake_gate();
      }
      if (monotonic_ns() > end) return false;
      ::usleep(50);
    }
  }
  int called_back_whole = 0;
  void take_back() {
    __atomic_store_n(&host->grant, generation | SLUICE_GRANT_CONTENDED, __ATOMIC_SEQ_CST);
    __atomic_store_n(&signal->evict, SLUICE_EVICT_ALL_SMS(generation), __ATOMIC_SEQ_CST);
    if (wp::is_forwarded(options_.signal)) wake_gate();
  }
  bool has_left() const {
    return __atomic_load_n(&report->header.in_flight, __ATOMIC_SEQ_CST) == 0 ||
           __atomic_load_n(&report->header.left_generation, __ATOMIC_ACQUIRE) >= generation;
  }
  bool wait_left(uint64_t ms = 20000) {
    const uint64_t end = monotonic_ns() + ms * 1'000'000;
    while (!has_left()) {
      if (monotonic_ns() > end) return false;
      ::usleep(50);
    }
    return true;
  }
  void wake_gate() { ring_wake(gate_.ours.get()); }
  void beat() { __atomic_store_n(&host->heartbeat_ns, monotonic_ns(), __ATOMIC_RELAXED); }
  void stop_beating() { beating_ = false; }
  void hang_up() { ::shutdown(control_.get(), SHUT_RDWR); }
  void end(int code, const char* text) {
    wp::Message m{wp::Type::kEnd};
    m.code = code;
    std::strncpy(m.text, text, sizeof m.text - 1);
    (void)send_with_fds(control_.get(), &m, sizeof m, {});
  }
  // The exit status, or -1 if it does not exit in time.
  int wait_exit(uint64_t ms = 20000) {
    const uint64_t stop = monotonic_ns() + ms * 1'000'000;
    int status = 0;
    while (monotonic_ns() < stop) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
      }
      ::usleep(1000);
    }
    return -1;
  }
  uint64_t leased() const { return leased_; }
  uint64_t places() const { return places_; }
  uint64_t host_leased() const { return host_leased_; }
  // What was leased when leave to load a module was asked for last.
  uint64_t host_at_leave() const { return host_at_leave_; }

  // --- the program ---
  uint64_t post(uint16_t opcode, std::span<const std::byte> body, uint64_t context = 0,
                uint16_t flags = 0) {
    sluice_record r{};
    r.opcode = opcode;
    r.flags = flags;
    r.call_id = next_call_++;
    r.context = context;
    while (!submit_.push(r, body)) {
      SLUICE_CHECK(!submit_.broken());
      submit_.publish();
      if (ended()) return r.call_id;  // nobody makes room any more
      ::usleep(100);
    }
    submit_.publish();
    return r.call_id;
  }
  template <class T>
  requires(!std::is_convertible_v<const T&, std::span<const std::byte>>) uint64_t
      post(uint16_t opcode, const T& body, uint64_t context = 0, uint16_t flags = 0) {
    return post(opcode, std::as_bytes(std::span(&body, 1)), context, flags);
  }
  // Waits for the completion of a call. Status -1: none came (the worker may be gone).
  Answer wait(uint64_t id, uint64_t ms = 30000) {
    const uint64_t stop = monotonic_ns() + ms * 1'000'000;
    for (;;) {
      if (auto it = answers_.find(id); it != answers_.end()) {
        Answer a = std::move(it->second);
        answers_.erase(it);
        return a;
      }
      RecordBuffer buffer;
      if (complete_.pop(buffer) == Pop::kRecord) {
        const auto& c = buffer.completion();
        Answer a{c.status, c.opcode, {buffer.body().begin(), buffer.body().end()}};
        if (c.call_id == 0 && c.opcode == SLUICE_CALL_PRINTED) {
          sluice_printed p;
          SLUICE_CHECK(a.body.size() >= sizeof p);
          std::memcpy(&p, a.body.data(), sizeof p);
          SLUICE_CHECK(p.bytes <= a.body.size() - sizeof p);
          (p.to == SLUICE_PRINTED_ERROR ? complained : printed)
              .append(reinterpret_cast<const char*>(a.body.data()) + sizeof p, p.bytes);
        } else if (c.call_id == 0) {
          async_errors.push_back(c.status);
        } else {
          answers_[c.call_id] = std::move(a);
        }
        continue;
      }
      if (monotonic_ns() > stop || ended() || ready.code != 0) return {};
      if (complete_.arm()) {
        pollfd p{wake_.get(), POLLIN, 0};
        ::poll(&p, 1, 20);
        complete_.disarm();
        drain_eventfd(wake_.get());
      }
    }
  }
  template <class T>
  Answer call(uint16_t opcode, const T& body, uint64_t context = 0) {
    return wait(post(opcode, body, context));
  }
  bool ended() const {
    return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == SLUICE_SLOT_ENDED;
  }
  std::byte* bulk(uint64_t offset) { return region_ + offset; }
  void ring_bell() { Bell::for_eventfd(bell_.get()).ring(); }
  std::byte* region() { return region_; }

  wp::Message ready{};
  wp::Message ended_message{};
  std::atomic<bool> has_ended_message{false};
  std::atomic<bool> answers_host_memory{true};  // else such requests wait until it does
  sluice_host_page* host;
  sluice_signal_page* signal;
  Report* report;
  sluice_slot_header* slot;
  uint32_t generation = 0;
  std::vector<int> async_errors;
  std::string printed, complained;  // by kernels
  pid_t pid() const { return pid_; }

 private:
  static Fd take(Result<Fd> fd) {
    SLUICE_CHECK(fd.ok());
    return std::move(*fd);
  }
  template <class T>
  static T* map(const Fd& fd, size_t bytes) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    SLUICE_CHECK(p != MAP_FAILED);
    return static_cast<T*>(p);
  }
  void serve() {
    uint64_t next_extent = kExtents;
    while (!stop_) {
      if (beating_) beat();
      pollfd p{control_.get(), POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      wp::Message m{};
      auto got = receive_with_fds(control_.get(), &m, sizeof m, MSG_DONTWAIT);
      if (!got || got->bytes != sizeof m) {
        pollfd there{control_.get(), POLLIN, 0};
        // A closed socket is readable for ever.
        if (::poll(&there, 1, 10) > 0 && (there.revents & POLLHUP) != 0) ::usleep(10000);
        continue;
      }
      wp::Message reply{};
      reply.request = m.request;
      switch (m.type) {
        case wp::Type::kLeaseRequest:
          reply.type = wp::Type::kLeaseReply;
          if (m.code == wp::kModuleLoads) {
            host_at_leave_ = host_leased_.load();
            reply.code = ENOMEM;
            break;
          }
          if (m.code == wp::kContextPlaces) {
            reply.code = places_ + m.bytes <= options_.context_places ? 0 : ENOMEM;
            if (reply.code == 0) places_ += m.bytes;
            break;
          }
          if (m.code == wp::kHostMemory) {
            while (!answers_host_memory && !stop_) ::usleep(1000);
            reply.code = host_leased_ + m.bytes <= options_.host_limit ? 0 : ENOMEM;
            if (reply.code == 0) host_leased_ += m.bytes;
            break;
          }
          reply.code = leased_ + m.bytes <= options_.lease_limit ? 0 : ENOMEM;
          if (reply.code == 0) leased_ += m.bytes;
          break;
        case wp::Type::kLeaseReturn:
          (m.code == wp::kHostMemory      ? host_leased_
           : m.code == wp::kContextPlaces ? places_
                                          : leased_) -= m.bytes;
          continue;
        case wp::Type::kExtentRequest:
          reply.type = wp::Type::kExtentReply;
          reply.offset = next_extent;
          reply.bytes = m.bytes;
          reply.code = next_extent + m.bytes <= kRegion ? 0 : ENOMEM;
          if (reply.code == 0) next_extent += m.bytes;
          break;
        case wp::Type::kEnded:
          ended_message = m;
          has_ended_message = true;
          continue;
        default:
          continue;
      }
      (void)send_with_fds(control_.get(), &reply, sizeof reply, {});
    }
  }

  Options options_;
  std::optional<Report> report_;
  Fd region_fd_, host_fd_, signal_fd_, report_fd_, records_fd_, bell_, wake_, control_;
  WakePair gate_, ring_;
  std::byte* region_;
  RingProducer submit_;
  RingConsumer complete_;
  pid_t pid_ = -1;
  std::thread thread_;
  std::atomic<bool> stop_{false}, beating_{true};
  std::atomic<uint64_t> leased_{0}, host_leased_{0}, host_at_leave_{0}, places_{0};
  uint64_t next_call_ = 1;
  std::map<uint64_t, Answer> answers_;
};

inline constexpr uint64_t kStaging = WorkerBench::kStaging;

// Copies between the bulk memory (`offset`) and device memory.
inline sluice_copy plain_copy(uint64_t dst, uint32_t dst_kind, uint64_t src, uint32_t src_kind,
                              uint64_t n, uint32_t wait) {
  sluice_copy c{};
  c.dst = dst;
  c.src = src;
  c.width = n;
  c.height = 1;
  c.dst_kind = dst_kind;
  c.src_kind = src_kind;
  c.wait = wait;
  return c;
}
inline sluice_copy to_device(uint64_t dst, uint64_t offset, uint64_t n, uint32_t wait = 1) {
  return plain_copy(dst, SLUICE_COPY_DEVICE, offset, SLUICE_COPY_BULK, n, wait);
}
inline sluice_copy to_host(uint64_t offset, uint64_t src, uint64_t n, uint32_t wait = 1) {
  return plain_copy(offset, SLUICE_COPY_BULK, src, SLUICE_COPY_DEVICE, n, wait);
}

}  // namespace sluice::test
