// SPDX-License-Identifier: Apache-2.0
// SwitchRecorder: reads the context-switch log of an NVIDIA GPU for sluiced, which has no
// privileges. A process of its own, a child of the spawner: the driver's calls have no deadline,
// and the spawner must serve meanwhile.
//
//   kernel driver ──▶ recorder (root) ──▶ ring in memory, sealed ──▶ sluiced (reads only)
//                        ▲ one byte: go on, or rest ────────────────────┘
//
// It is forked while all that the host shows is there, opens the log (gpu/driver_switch_log.h) and
// says whether that went well. Then it flushes the log every kFlushMs and adds the records to the
// ring (gpu/switch_ring.h), with times of the host's clock; while it rests, once a second. It reads
// nothing but that byte, and ends when sluiced has closed its end, when the spawner ends, or when
// the driver refuses a call. Nobody restarts it but the next spawner.
#pragma once

#include <sys/types.h>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/gpu/driver_device.h"

namespace sluice::spawner {

class SwitchRecorder {
 public:
  // Returns when it records, or has said why not. It outlives this object.
  static Result<SwitchRecorder> start(gpu::DriverDevice& device);

  // What sluiced gets: the ring, and the end of the socket that takes its byte.
  int ring() const { return ring_.get(); }
  int control() const { return control_.get(); }
  pid_t pid() const { return pid_; }
  // sluiced has them: the recorder must end when that closes its own.
  void hand_over() { ring_.reset(), control_.reset(); }

 private:
  SwitchRecorder(pid_t pid, Fd ring, Fd control)
      : pid_(pid), ring_(std::move(ring)), control_(std::move(control)) {}
  pid_t pid_;
  Fd ring_, control_;
};

}  // namespace sluice::spawner
