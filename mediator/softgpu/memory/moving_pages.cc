// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/memory/moving_pages.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace sluice::softgpu {
namespace {

constexpr uint64_t kMovedPage = 4096;

std::atomic<bool> moving{false};
std::atomic<uintptr_t> within_begin{0}, within_end{0};
struct sigaction previous;

// A write to pages that are being moved. When they are, it is made again. It may also come to know
// of them only then: nothing else makes `within` read-only.
void on_write(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (at >= within_begin.load() && at < within_end.load()) {
    const int saved = errno;
    while (moving.load()) ::sched_yield();
    errno = saved;
    return;
  }
  // Not ours: what was there before decides.
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
  ::sigaction(SIGSEGV, &previous, nullptr);
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_write;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, &previous);
}

// The file stays sparse where nothing was written.
void copy_pages(char* to, const char* from, uint64_t bytes) {
  static constexpr char kZeros[kMovedPage] = {};
  for (uint64_t at = 0; at < bytes; at += kMovedPage)
    if (std::memcmp(from + at, kZeros, kMovedPage) != 0)
      std::memcpy(to + at, from + at, kMovedPage);
}

}  // namespace

Result<void> move_pages(void* pages, uint64_t bytes, int file, std::span<char> within) {
  void* const view = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (view == MAP_FAILED) return Error::from_errno("mapping a file for device memory");
  within_begin.store(reinterpret_cast<uintptr_t>(within.data()));
  within_end.store(within_begin.load() + within.size());
  static std::once_flag once;
  std::call_once(once, install);
  moving.store(true);
  Result<void> moved{};
  if (::mprotect(pages, bytes, PROT_READ) == 0) {
    copy_pages(static_cast<char*>(view), static_cast<const char*>(pages), bytes);
    if (::mremap(view, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
      moved = Error::from_errno("moving device memory to a file");
      (void)::mprotect(pages, bytes, PROT_READ | PROT_WRITE);
    }
  } else {
    moved = Error::from_errno("stopping writes to device memory");
  }
  moving.store(false);
  if (!moved) ::munmap(view, bytes);
  return moved;
}

}  // namespace sluice::softgpu
