// SPDX-License-Identifier: Apache-2.0
// A worker that a guest has taken over, and that floods sluiced over what it shares with it. It
// enters the sandbox as a worker does, says Ready, and does what its vGPU is called, without end:
//
//   lines        short lines to standard error that are no text, thousands in a message
//   endless      one line to standard error that never ends
//   descriptors  descriptors over each socket that it has, as many at once as the kernel takes
//   asks         requests over the control link, whose answers it reads
//   requests     the same, and reads nothing
//   rings        rings, with a report that says each time that it has work, or none
//
// Workers of vGPUs of other names become the real program (SLUICE_EVIL_REAL).
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "mediator/base/peer_socket.h"
#include "tests/system/adversaries/programs/taken_worker.h"

using namespace sluice;
using namespace sluice::adversary;
using namespace sluice::worker_protocol;

namespace {

// Waits where the socket is full: sluiced decides how fast this goes.
[[noreturn]] void write_without_end(const std::string& text) {
  for (;;) (void)!::write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void pass_without_end(const std::vector<Fd>& start_fds) {
  const int sockets[] = {kControlFd, STDERR_FILENO, start_fds[kGateFd].get(),
                         start_fds[kRingFd].get()};
  const PassedDescriptor many(start_fds[kRegionFd].get(), PassedDescriptor::kMost);
  for (;;)
    for (int socket : sockets) ::sendmsg(socket, &many.header(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

[[noreturn]] void ask_without_end(bool reads_answers) {
  Message ask{}, answer{};
  ask.bytes = 1;
  for (uint64_t i = 0;; ++i) {
    ask.type = i % 2 ? Type::kLeaseReturn : Type::kLeaseRequest;
    ::send(kControlFd, &ask, sizeof ask, MSG_NOSIGNAL);
    if (!reads_answers || i % 2) continue;
    ::recv(kControlFd, &answer, sizeof answer, 0);
  }
}

[[noreturn]] void ring_without_end(const std::vector<Fd>& start_fds, sluice_report_header& report) {
  for (uint32_t i = 0;; ++i) {
    __atomic_store_n(&report.demand, i & 1, __ATOMIC_SEQ_CST);
    ring_wake(start_fds[kRingFd].get());
  }
}

}  // namespace

int main() {
  const std::string what = peek_first_packet().start.vgpu;
  if (what.size() < 2) become_the_real_worker();
  const std::vector<Fd> start_fds = receive_start();
  sluice_report_header& report = map_report(start_fds);
  enter_sandbox_and_report(false);

  std::string text(64 << 10, '\n');
  if (what == "endless") text.assign(text.size(), 'x');
  const bool lines = what == "lines" || what == "many";
  for (size_t i = 0; lines && i + 1 < text.size(); i += 16) text[i] = '\xff';
  if (lines || what == "endless") write_without_end(text);
  if (what == "descriptors") pass_without_end(start_fds);
  if (what == "rings") ring_without_end(start_fds, report);
  ask_without_end(what == "asks");
}
