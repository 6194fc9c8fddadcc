// SPDX-License-Identifier: Apache-2.0
#include "tests/system/adversaries/programs/overstay.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "abi/stub.h"
#include "mediator/base/clock.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/worker_protocol.h"

namespace sluice::adversary {

using namespace worker_protocol;

namespace {

constexpr int kLookMs = 1;  // how often sluiced's page is copied

class Proxy {
 public:
  Proxy(Fd sluiced, Fd worker, const Overstay& how)
      : sluiced_(std::move(sluiced)), worker_(std::move(worker)), how_(how) {}

  // Until one of them hangs up: the exit status.
  int run() {
    for (;;) {
      pollfd both[] = {{sluiced_.get(), POLLIN, 0}, {worker_.get(), POLLIN, 0}};
      if (::poll(both, 2, kLookMs) < 0) return 1;
      if (both[0].revents && !pass_on(sluiced_, worker_)) return 0;
      if (both[1].revents && !pass_on(worker_, sluiced_)) return 0;
      copy_page();
      const uint64_t now_ns = monotonic_ns();
      if (how_.again_us == 0 || !ready_ || now_ns - set_ns_ < how_.again_us * 1000) continue;
      if (!set_slice()) return 0;
    }
  }

 private:
  bool pass_on(const Fd& from, const Fd& to) {
    struct {
      Message message;
      Start start;
    } packet{};
    auto got = receive_with_fds(from.get(), &packet, sizeof packet);
    if (!got || got->bytes == 0) return false;
    if (packet.message.type == Type::kStart && !take_page(got->fds)) return false;
    if (packet.message.type == Type::kTimeSlice) {
      slice_ns_ = packet.message.bytes;
      return !ready_ || set_slice();
    }
    std::vector<int> fds;
    for (const Fd& fd : got->fds) fds.push_back(fd.get());
    if (!send_with_fds(to.get(), &packet, got->bytes, fds)) return false;
    if (packet.message.type != Type::kReady) return true;
    ready_ = true;
    return set_slice();
  }
  // The worker gets another one in its place.
  bool take_page(std::vector<Fd>& fds) {
    if (fds.size() < kStartFdCount) return false;
    auto own = make_memfd("gate", SLUICE_STUB_PAGE_BYTES);
    if (!own) return false;
    void* theirs =
        ::mmap(nullptr, SLUICE_STUB_PAGE_BYTES, PROT_READ, MAP_SHARED, fds[kHostFd].get(), 0);
    void* ours =
        ::mmap(nullptr, SLUICE_STUB_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, own->get(), 0);
    if (theirs == MAP_FAILED || ours == MAP_FAILED) return false;
    theirs_ = static_cast<const sluice_host_page*>(theirs);
    ours_ = static_cast<sluice_host_page*>(ours);
    fds[kHostFd] = std::move(*own);
    copy_page();
    return true;
  }
  void copy_page() {
    if (!ours_) return;
    std::memcpy(ours_->sms, theirs_->sms, sizeof ours_->sms);
    const uint64_t grant = __atomic_load_n(&theirs_->grant, __ATOMIC_SEQ_CST);
    const uint64_t beat_ns = __atomic_load_n(&theirs_->heartbeat_ns, __ATOMIC_SEQ_CST);
    __atomic_store_n(&ours_->grant, grant | SLUICE_GRANT_OPEN, __ATOMIC_SEQ_CST);
    __atomic_store_n(&ours_->heartbeat_ns, beat_ns, __ATOMIC_SEQ_CST);
  }
  bool set_slice() {
    Message m{};
    m.type = Type::kTimeSlice;
    m.bytes = how_.slice_ns ? how_.slice_ns : slice_ns_;
    set_ns_ = monotonic_ns();
    return send_with_fds(worker_.get(), &m, sizeof m, {}).ok();
  }

  const Fd sluiced_, worker_;
  const Overstay how_;
  const sluice_host_page* theirs_ = nullptr;
  sluice_host_page* ours_ = nullptr;
  bool ready_ = false;
  uint64_t slice_ns_ = 1'000'000, set_ns_ = 0;
};

}  // namespace

std::string overstay(const Overstay& how) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return "socketpair";
  Fd proxys(pair[0]), workers(pair[1]);
  const pid_t proxy = ::fork();
  if (proxy < 0) return "fork";
  if (proxy == 0) {
    workers.reset();
    std::_Exit(Proxy(Fd(kControlFd), std::move(proxys), how).run());
  }
  if (::dup2(workers.get(), kControlFd) != kControlFd) return "dup2";
  ::execl(std::getenv("SLUICE_EVIL_REAL"), "sluice-worker", nullptr);
  return "execl";
}

}  // namespace sluice::adversary
