// SPDX-License-Identifier: Apache-2.0
// sluice-libvirt-events: the service that keeps vGPUs in step with running domains (follower.h). It
// reads from libvirt and writes to sluiced; either may end and come back at any time. Settings are
// environment variables, as the hook's.

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/libvirt/api/events.h"
#include "mediator/libvirt/follower.h"
#include "mediator/libvirt/limits.h"

namespace sluice::libvirt {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = ::getenv(name);
  return value && *value ? value : otherwise;
}

// Reports the beginning and the end of an outage, and how long to wait within it.
class Outage {
 public:
  explicit Outage(std::string of) : of_(std::move(of)) {}
  int began_or_goes_on(const Error& e) {
    if (wait_ms_ == 0) log::warning("{}: {}; trying again", of_, e.message);
    wait_ms_ = std::clamp(2 * wait_ms_, limits::kLeastRetryMs, limits::kMostRetryMs);
    return wait_ms_;
  }
  void over() {
    if (wait_ms_ != 0) log::info("{}: there again", of_);
    wait_ms_ = 0;
  }
  int wait_ms() const { return wait_ms_; }

 private:
  const std::string of_;
  int wait_ms_ = 0;  // 0: no outage
};

// While the connection to libvirt lasts.
void serve(DomainEvents& libvirt, Follower& follower, Outage& sluiced) {
  std::set<std::string> changed;
  bool all = true, left = true;
  uint64_t polled_ns = 0;
  for (;;) {
    const uint64_t now = monotonic_ns();
    const uint64_t pause = left ? limits::kLeftoverPollSeconds : limits::kPollSeconds;
    const bool due = all || now - polled_ns >= pause * kSecond;
    auto done = due ? follower.all(libvirt, now) : follower.changed(libvirt, changed, now);
    if (done && (due || !changed.empty())) {
      auto collected = follower.collect(libvirt, now);
      if (collected)
        left = *collected;
      else
        done = collected.error();
    }
    int wait_ms = static_cast<int>(pause) * 1000;
    if (done) {
      sluiced.over();
      changed.clear();
      if (all) log::info("following the domains");
      if (due) polled_ns = now;
      all = false;
    } else {
      wait_ms = sluiced.began_or_goes_on(done.error());
      all = true;
    }
    if (!libvirt.wait(wait_ms)) return;
    changed.merge(libvirt.take_changed());
  }
}

[[noreturn]] void run() {
  const std::string uri = variable("SLUICE_LIBVIRT_URI", "qemu:///system");
  AdminVgpus vgpus(variable("SLUICE_ADMIN_SOCKET", "/run/sluice/admin.sock"));
  Follower::Options options;
  options.sockets = variable("SLUICE_VGPU_SOCKETS", options.sockets);
  Follower follower(vgpus, options);
  Outage libvirtd("libvirt"), sluiced("sluiced");
  for (;;) {
    auto libvirt =
        DomainEvents::open(uri, [&](const Error& silent) { libvirtd.began_or_goes_on(silent); });
    if (libvirt) {
      libvirtd.over();
      serve(**libvirt, follower, sluiced);
      libvirtd.began_or_goes_on({ECONNRESET, "the connection is lost"});
    } else {
      libvirtd.began_or_goes_on(libvirt.error());
    }
    ::poll(nullptr, 0, libvirtd.wait_ms());
  }
}

}  // namespace
}  // namespace sluice::libvirt

int main(int argc, char**) {
  if (argc > 1) {
    std::fputs(
        "usage: sluice-libvirt-events (settings: SLUICE_ADMIN_SOCKET, SLUICE_LIBVIRT_URI,\n"
        "       SLUICE_VGPU_SOCKETS)\n",
        stderr);
    return 2;
  }
  sluice::log::init("sluice-libvirt-events", sluice::log::Level::kInfo);
  sluice::libvirt::run();
}
