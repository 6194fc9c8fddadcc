// SPDX-License-Identifier: Apache-2.0
// How soon sockets answer on a busy machine; for answer_delay.py.
//
//   answer_delay echo SOCKET              answers each line with one, until it is ended
//   answer_delay ask SECONDS SOCKET...    asks each in turn every 10 ms, over one connection each;
//                                         a line for each: "SOCKET ANSWERS P50 P99 MOST", in us
//   answer_delay burn                     keeps a processor busy
//
// The asker runs in real time (SCHED_FIFO) where it may, so that its own delays do not count.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "mediator/base/unix_socket.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr char kQuestion[] =
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\",\"params\":{}}\n";
constexpr auto kPeriod = std::chrono::milliseconds(10);
constexpr int kPatienceMs = 60'000;

int echo(const char* path) {
  auto listener = sluice::listen_unix(path, SOCK_STREAM, 0600);
  if (!listener) return 1;
  for (;;) {
    sluice::Fd peer(::accept(listener->get(), nullptr, nullptr));
    char bytes[4096];
    for (ssize_t n; peer && (n = ::read(peer.get(), bytes, sizeof bytes)) > 0;)
      if (::write(peer.get(), bytes, static_cast<size_t>(n)) != n) break;
  }
}

class Asked {
 public:
  explicit Asked(const char* path) : path_(path) {
    auto socket = sluice::connect_unix(path, SOCK_STREAM);
    if (socket) socket_ = std::move(*socket);
  }
  bool ask() {
    const auto from = Clock::now();
    if (::write(socket_.get(), kQuestion, sizeof kQuestion - 1) < 0) return false;
    char bytes[4096];
    do {
      pollfd p{socket_.get(), POLLIN, 0};
      if (::poll(&p, 1, kPatienceMs) <= 0) return false;
      const ssize_t n = ::read(socket_.get(), bytes, sizeof bytes);
      if (n <= 0) return false;
      if (bytes[n - 1] == '\n') break;
    } while (true);
    us_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - from).count());
    return true;
  }
  void print() {
    std::sort(us_.begin(), us_.end());
    std::printf("%s %zu %.1f %.1f %.1f\n", path_, us_.size(), us_[us_.size() / 2],
                us_[us_.size() * 99 / 100], us_.back());
  }

 private:
  const char* path_;
  sluice::Fd socket_;
  std::vector<double> us_;
};

int ask(double seconds, std::vector<Asked> all) {
  sched_param first{};
  first.sched_priority = 2;
  if (::sched_setscheduler(0, SCHED_FIFO, &first) != 0) std::fprintf(stderr, "not in real time\n");
  for (const auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end;)
    for (Asked& a : all) {
      if (!a.ask()) return 1;
      std::this_thread::sleep_for(kPeriod);
    }
  for (Asked& a : all) a.print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody burns on after a measurement that was cut off
  if (what == "burn")
    for (volatile unsigned i = 0;;) i = i + 1;
  if (what == "echo" && argc == 3) return echo(argv[2]);
  if (what != "ask" || argc < 4) return 2;
  std::vector<Asked> all;
  for (int i = 3; i < argc; ++i) all.emplace_back(argv[i]);
  return ask(std::atof(argv[2]), std::move(all));
}
