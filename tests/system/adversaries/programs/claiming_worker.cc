// SPDX-License-Identifier: Apache-2.0
// A worker that a guest has taken over, and that does what its vGPU is called (WHAT, or
// WHAT-ANYTHING). It claims work, launches nothing, and reports:
//
//   queued    launches are queued, always; none is in flight
//   running   the same, and one is in flight while the gate is open
//   lateN     the same, and that one leaves N ms after it has to
//   blinkN    work is queued; none as soon as the gate opens; again N us later
//   endsN     as `running`, and says that launches end every N us
//
// or is the real program, whose gate is always open (overstay.h), and which
//
//   overstayN  sets its time slices to N ms whatever sluiced says
//   resetN     sets the slice that sluiced gave it again each N us
//
// Workers of vGPUs of other names, and sluiced's witness, become the real program
// (SLUICE_EVIL_REAL).
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/base/peer_socket.h"
#include "tests/system/adversaries/programs/overstay.h"
#include "tests/system/adversaries/programs/taken_worker.h"

using namespace sluice;
using namespace sluice::adversary;
using namespace sluice::worker_protocol;

namespace {

void put(uint32_t& word, uint32_t value) { __atomic_store_n(&word, value, __ATOMIC_SEQ_CST); }

void sleep_us(uint64_t us) {
  const timespec t{static_cast<time_t>(us / 1'000'000), static_cast<long>(us % 1'000'000) * 1000};
  ::nanosleep(&t, nullptr);
}

class Claims {
 public:
  Claims(const std::vector<Fd>& fds, const sluice_host_page& host, sluice_report_header& report)
      : gate_(fds[kGateFd].get()), ring_(fds[kRingFd].get()), host_(host), report_(report) {}

  [[noreturn]] void make(const std::string& what, uint64_t number) {
    const bool flies = what != "queued" && what != "blink";
    for (;;) {
      report(1, 0);
      const uint64_t open = wait_for(SLUICE_GRANT_OPEN, SLUICE_GRANT_OPEN);
      if (what == "blink") {
        report(0, 0);
        sleep_us(number);
        continue;
      }
      if (flies) put(report_.in_flight, 1);
      if (what == "ends") end_launches(number);
      wait_for(SLUICE_GRANT_OPEN, 0);
      if (what == "late") sleep_us(number * 1000);
      put(report_.in_flight, 0);
      put(report_.left_generation, SLUICE_GRANT_GENERATION(open));
    }
  }

 private:
  uint64_t grant() const { return __atomic_load_n(&host_.grant, __ATOMIC_SEQ_CST); }
  void report(uint32_t demand, uint32_t in_flight) {
    put(report_.demand, demand);
    put(report_.in_flight, in_flight);
    ring_wake(ring_);
  }
  uint64_t wait_for(uint64_t bits, uint64_t value) {
    for (;;) {
      const uint64_t word = grant();
      if ((word & bits) == value) return word;
      pollfd p{gate_, POLLIN, 0};
      ::poll(&p, 1, 50);
      drain_trusted_wake(gate_);
    }
  }
  void end_launches(uint64_t us) {
    while (grant() & SLUICE_GRANT_OPEN) {
      __atomic_fetch_add(&report_.launches, 1, __ATOMIC_RELAXED);
      __atomic_fetch_add(&report_.launches_done, 1, __ATOMIC_RELAXED);
      sleep_us(us);
    }
  }

  const int gate_, ring_;
  const sluice_host_page& host_;
  sluice_report_header& report_;
};

}  // namespace

int main() {
  const FirstPacket packet = peek_first_packet();
  const std::string name = packet.start.vgpu,
                    what = name.substr(0, name.find_first_of("0123456789-"));
  const uint64_t number = std::strtoul(name.c_str() + what.size(), nullptr, 10);
  const bool witness = packet.message.type == Type::kWitness;
  if (!witness && (what == "overstay" || what == "reset")) {
    Overstay how;
    (what == "reset" ? how.again_us : how.slice_ns) = what == "reset" ? number : number * 1'000'000;
    overstay(how);
    return 96;
  }
  const bool lies =
      what == "queued" || what == "running" || what == "late" || what == "blink" || what == "ends";
  if (witness || !lies) become_the_real_worker();
  const std::vector<Fd> start_fds = receive_start();
  void* host =
      ::mmap(nullptr, SLUICE_STUB_PAGE_BYTES, PROT_READ, MAP_SHARED, start_fds[kHostFd].get(), 0);
  if (host == MAP_FAILED) return kNotMapped;
  sluice_report_header& report = map_report(start_fds);
  enter_sandbox_and_report(false);
  // It ends when it has to, so that a test does not wait for that.
  std::thread([] {
    Message end{};
    while (::recv(kControlFd, &end, sizeof end, 0) > 0 && end.type != Type::kEnd) {
    }
    std::_Exit(0);
  }).detach();
  Claims claims(start_fds, *static_cast<const sluice_host_page*>(host), report);
  claims.make(what, number);
}
