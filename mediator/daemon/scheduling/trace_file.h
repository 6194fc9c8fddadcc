// SPDX-License-Identifier: Apache-2.0
// TraceFile: writes what the scheduler did as a trace that sluice-sim replays
// (docs/operating/simulator.md, "Traces"). Owned by the GrantExecutor, fed with the scheduler's log
// events in sluiced's one thread; decides nothing. Lines gather in memory and go to the file when a
// block is full and at each heartbeat, by a thread, so no decision waits for a disk; the trace of
// one that is too slow ends. The file's path is the operator's, by configuration or option; nothing
// of a guest is in it but when it had work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/scheduler.h"
#include "mediator/daemon/scheduling/background_file.h"

namespace sluice {

class TraceFile {
 public:
  // Makes or empties `path`. `sms`: what the trace calls the whole GPU. At most `limit_bytes` are
  // written; then a warning is logged and the trace ends, whole lines only.
  static Result<std::unique_ptr<TraceFile>> open(const std::string& path, uint32_t sms,
                                                 uint64_t limit_bytes, uint64_t now_ns);
  ~TraceFile();

  // A vGPU's weight and priority, when it is added and when they change.
  void share(uint64_t now_ns, core::VgpuId vgpu, const std::string& name,
             const policy::VgpuShare& share);
  // Of the kinds that a trace knows; the others are passed over.
  void event(uint64_t now_ns, core::LogEvent event, core::VgpuId vgpu);
  // A vGPU's time slice was set to `ns`, or what it was charged; for people.
  void slice(uint64_t now_ns, core::VgpuId vgpu, uint64_t ns);
  void used(uint64_t now_ns, core::VgpuId vgpu, uint64_t ns);
  void flush();

 private:
  TraceFile(Fd fd, std::string path, uint64_t limit_bytes, uint64_t now_ns);
  void line_ns(uint64_t now_ns, const char* event, core::VgpuId vgpu, uint64_t ns);
  void line(uint64_t now_ns, const char* event, core::VgpuId vgpu, const std::string& rest = {});
  void end(const std::string& why);

  struct TracedVgpu {
    std::string name;
    bool busy = false, holds = false;
  };
  std::unique_ptr<BackgroundFile> file_;   // null: the trace has ended
  std::unique_ptr<BackgroundFile> ended_;  // it, then; what it has still to write is written
  const std::string path_;
  const uint64_t limit_bytes_, begin_ns_;
  uint64_t written_ = 0;  // or to be
  std::string buffer_;
  std::vector<TracedVgpu> vgpus_;
};

}  // namespace sluice
