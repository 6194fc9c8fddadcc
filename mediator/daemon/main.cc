// SPDX-License-Identifier: Apache-2.0
// sluiced: parse the command line, set up, run until a signal.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <functional>
#include <thread>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/daemon/daemon.h"
#include "mediator/io/loop_meter.h"
#include "mediator/io/loop_priority.h"
#include "mediator/io/polls_aside.h"
#include "mediator/ring/wait.h"

namespace {

// A vGPU costs some fifty descriptors, a session a dozen.
constexpr rlim_t kDescriptors = 65536;

void raise_descriptor_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, kDescriptors);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  // The kernel makes the table of a process's descriptors larger as they come. Where threads share
  // it, whoever needs a larger one waits until all processors have seen that: 10 ms and more, in
  // the loop. So it is made as large as it may get while there is one thread.
  const int last = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, static_cast<int>(limit.rlim_cur) - 1);
  if (last >= 0) ::close(last);
}

// The loop. It polls for events for so long before it sleeps: the next holder waits for it. For an
// urgent vGPU's work it polls as long as that vGPU's workers do for its programs. All but the first
// moment of that is for where a processor is to spare.
void run(boost::asio::io_context& io, const sluice::Daemon& daemon, uint32_t spin_us) {
  constexpr uint32_t kMomentUs = 50;  // about what a sleep and a wake-up cost
  if (spin_us == 0) {
    io.run();
    return;
  }
  sluice::Spinner moment(std::min(spin_us, kMomentUs)), spinner(spin_us);
  sluice::io::PollsAside aside;
  const auto poll = [&] {
    sluice::io::LoopMeter::before_poll();
    return io.poll() != 0 || io.stopped();
  };
  const auto poll_on = [&] {
    return spinner.spin(poll) || sluice::Spinner::spin_until(daemon.expects_ring_until_ns(), poll);
  };
  while (!io.stopped()) {
    if (moment.spin(poll) || aside.run(poll_on)) continue;
    const uint64_t from_ns = sluice::monotonic_ns();
    io.run_one();
    const uint64_t slept_ns = sluice::monotonic_ns() - from_ns;
    moment.slept(slept_ns);
    spinner.slept(slept_ns);
  }
}

struct Options {
  std::string config_path = SLUICE_SYSCONFDIR "/sluice.toml";
  std::string trace_path;
  bool check_only = false;
};

void add_options(CLI::App& app, Options& o) {
  app.add_option("--config", o.config_path, "configuration file")->capture_default_str();
  app.add_option("--trace", o.trace_path,
                 "record what the scheduler does in this file, for sluice-sim (instead of "
                 "scheduler.trace)");
  app.add_flag("--check-config", o.check_only,
               "read the configuration, say whether it is good, and end");
  app.set_version_flag("--version", "sluiced " SLUICE_VERSION);
}

// With this exit status systemd starts sluiced anew (RestartForceExitStatus=).
constexpr int kStartAnew = 75;

// SIGHUP, of an upgrade: systemd is to start the new sluiced as soon as that ends no program.
void end_when_idle(sluice::Daemon& daemon, boost::asio::io_context& io, int& status) {
  sluice::log::info("SIGHUP: ending as soon as no program uses the GPU, to be started anew");
  daemon.when_idle([&] {
    status = kStartAnew;
    daemon.shut_down([&] { io.stop(); });
  });
}

// Until a signal, or until only a new sluiced helps. The exit status. `managed`: by systemd, which
// keeps vGPUs and starts sluiced anew.
int serve(boost::asio::io_context& io, std::unique_ptr<sluice::Daemon> daemon, bool managed) {
  int status = 0;
  boost::asio::signal_set signals(io, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code& error, int signal) {
    if (error) return;
    sluice::log::info("signal {}: ending all sessions", signal);
    status = 0;
    daemon->shut_down([&] { io.stop(); });
  });
  boost::asio::signal_set hangup(io);
  std::function<void()> next_hangup = [&] {
    hangup.async_wait([&](const boost::system::error_code& error, int) {
      if (error) return;
      end_when_idle(*daemon, io, status);
      next_hangup();
    });
  };
  if (managed) {
    hangup.add(SIGHUP);
    next_hangup();
  }
  daemon->on_beyond_repair([&] {
    status = 1;
    io.stop();
  });
  const sluice::Config& used = daemon->config();
  const bool spins = (used.turns_by_priority || used.slices) &&
                     used.spin_processors_for(std::thread::hardware_concurrency()) != 0;
  run(io, *daemon, spins ? used.spin_us : 0);
  daemon.reset();
  sluice::log::info("ended");
  sluice::log::finish(sluice::limits::kLogFinishMs);
  return status;
}

int cannot_start(const sluice::Error& why) {
  sluice::log::error("cannot start: {}", why.message);
  sluice::log::finish(sluice::limits::kLogFinishMs);
  return 1;
}

// Before others where that is allowed; otherwise a line says what to do.
void go_first(const sluice::Config& config) {
  using sluice::io::LoopPriority;
  const auto raised = LoopPriority::raise(config.nice, config.real_time);
  if (raised) return;
  if (LoopPriority::state() == LoopPriority::State::kNice)
    sluice::log::warning(
        "{}; sluiced goes by `nice`: sluicectl doctor says how to allow it, real_time = false does "
        "without",
        raised.error().message);
  else
    sluice::log::warning("{}", raised.error().message);
}

}  // namespace

int main(int argc, char** argv) {
  // Before anything is opened or started.
  auto store = sluice::io::FdStore::from_environment();
  Options o;
  CLI::App app{"sluiced: shares one GPU among virtual machines by weight"};
  add_options(app, o);
  CLI11_PARSE(app, argc, argv);

  auto config = sluice::load_config(o.config_path);
  if (!config) {
    std::fprintf(stderr, "sluiced: %s\n", config.error().message.c_str());
    return 2;
  }
  if (o.check_only) {
    for (const std::string& remark : config->remarks)
      std::fprintf(stderr, "sluiced: %s\n", remark.c_str());
    sluice::log::init("sluiced", sluice::log::Level::kError);
    if (auto good = sluice::Daemon::check(*config); !good) {
      std::fprintf(stderr, "sluiced: %s: %s\n", o.config_path.c_str(),
                   good.error().message.c_str());
      return 2;
    }
    std::printf("%s is good\n", o.config_path.c_str());
    return 0;
  }
  if (!o.trace_path.empty()) config->trace = o.trace_path;
  sluice::log::init("sluiced", config->log_level);
  for (const std::string& remark : config->remarks) sluice::log::warning("{}", remark);
  raise_descriptor_limit();
  go_first(*config);

  auto identity = sluice::Identity::wanted(*config);
  if (!identity) return cannot_start(identity.error());
  boost::asio::io_context io(1);
  const bool managed = store.available();
  auto daemon = sluice::Daemon::make(io, *config, *identity, std::move(store));
  // Not before: capabilities are given up by one thread for itself only.
  sluice::log::write_in_background();
  if (!daemon) return cannot_start(daemon.error());
  return serve(io, std::move(*daemon), managed);
}
