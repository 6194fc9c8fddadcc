// SPDX-License-Identifier: Apache-2.0
// While one lives, new threads of the calling thread take none of the program's signals. Faults are
// a thread's own: a thread of the software GPU that writes to memory which is being moved waits in
// the handler of SIGSEGV (softgpu/memory/moving_pages.h), and a blocked SIGSEGV ends the process.
#pragma once

#include <signal.h>

namespace sluice {

class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t others;
    ::sigfillset(&others);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP})
      ::sigdelset(&others, fault);
    ::pthread_sigmask(SIG_SETMASK, &others, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace sluice
