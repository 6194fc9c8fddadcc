// What a worker may still ask of the kernel once it serves. It handles a hostile guest's bytes and
// text (PTX) in one process with a driver; should one of these be made to misbehave, it holds its
// own session's descriptors and cannot get more.
//
// Called once by main, when the driver is up and before the session's threads start; holds for
// every thread. Cannot be undone.
#pragma once

#include "mediator/base/result.h"

namespace sluice::worker {

// Closes all descriptors above `last_kept`: before anything is opened.
void close_others(int last_kept);

// no_new_privs, not dumpable by others, and a seccomp filter:
//  - software GPU: an allow list of what memory, threads, waiting and our sockets need. Opening
//  files,
//    new sockets, new processes, executing and executable memory are refused; so is changing the
//    flags of open files (O_NONBLOCK), which sluiced and the guest share.
//  - NVIDIA: its driver opens device files, loads its compiler and maps code at any time, so what
//    neither it nor we ever need is refused: programs, processes, tracing, mounts, namespaces,
//    modules, keys, BPF, io_uring, network sockets, signals to others. The rest is left to the
//    walls that the spawner has put up (mediator/spawner/prison.h).
// Signals go to this process only, new threads are the only new tasks. Refused calls fail with
// EPERM, clone3 with ENOSYS; executing and tracing kill the process.
Result<void> enter_sandbox(bool nvidia);

}  // namespace sluice::worker
