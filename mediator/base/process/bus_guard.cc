// SPDX-License-Identifier: Apache-2.0
#include "mediator/base/process/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

namespace sluice {
namespace {

// Read by the handler in whatever thread has touched a lost page; a slot counts while `end` is set.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> taken{false}, lost{false};
};
Slot slots[BusGuard::kMost];
struct sigaction previous;
uintptr_t page_bytes = 4096;

void on_bus(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& s : slots) {
    const uintptr_t end = s.end.load();
    if (end == 0 || at < s.begin.load() || at >= end) continue;
    s.lost.store(true);
    void* page = reinterpret_cast<void*>(at & ~(page_bytes - 1));
    if (::mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0) != MAP_FAILED) {
      errno = saved;
      return;
    }
  }
  errno = saved;
  // Not ours: what was there before decides. The access is made again and meets it.
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
  ::sigaction(SIGBUS, &previous, nullptr);
}

void install() {
  page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous);
}

}  // namespace

BusGuard::BusGuard(void* address, size_t bytes) {
  static std::once_flag once;
  std::call_once(once, install);
  for (int i = 0; i < kMost; ++i) {
    if (slots[i].taken.exchange(true)) continue;
    const auto begin = reinterpret_cast<uintptr_t>(address);
    slots[i].lost.store(false);
    slots[i].begin.store(begin);
    slots[i].end.store(begin + bytes);
    slot_ = i;
    return;
  }
}

BusGuard& BusGuard::operator=(BusGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

BusGuard::~BusGuard() {
  if (slot_ < 0) return;
  slots[slot_].end.store(0);
  slots[slot_].taken.store(false);
}

bool BusGuard::lost() const { return slot_ >= 0 && slots[slot_].lost.load(); }

}  // namespace sluice
