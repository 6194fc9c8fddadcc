// SPDX-License-Identifier: Apache-2.0
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

// no_new_privs, not dumpable by others, and a seccomp filter that is a list of what is allowed:
//  - Software GPU: what memory, threads, waiting and our sockets need. Opening files, new sockets
//  and
//    executable memory are refused; so is changing the flags of open files (O_NONBLOCK), which
//    sluiced and the guest share.
//  - NVIDIA: also what its driver was seen to need, at any time: device files and their ioctls,
//    libraries, its compiler's code, its cache, Unix sockets. Which files it reaches is for the
//    walls that the spawner has put up (mediator/spawner/walls/prison.h).
//  - `mps`, beside NVIDIA's MPS server: also descriptors sent over sockets. Elsewhere none leaves a
//    worker: before Linux 6.10, sockets under way in sockets cost each process of the host time
//    whenever it sends something.
// Signals go to this process only, new threads are the only new tasks.
//
// What else is called: executing, tracing and others' memory end the process, as nothing but an
// attack calls those. The rest fails and does not end it: a driver that probes for something new
// must not take a guest's session with it. It fails with EPERM beside the software GPU; beside
// NVIDIA's driver as refused_calls.h says, with a line in the log. clone3 fails with ENOSYS.
Result<void> enter_sandbox(bool nvidia, bool mps = false);

}  // namespace sluice::worker
