// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/trace_file.h"

#include <fcntl.h>

#include <utility>

#include "mediator/base/log.h"

namespace sluice {
namespace {
constexpr size_t kBlockBytes = 64 * 1024;
}

Result<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& path, uint32_t sms,
                                                   uint64_t limit_bytes, uint64_t now_ns) {
  // Not through a link: sluiced may be root, and the directory somebody else's.
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640));
  if (!fd) return Error::from_errno("trace " + path);
  std::unique_ptr<TraceFile> t(new TraceFile(std::move(fd), path, limit_bytes, now_ns));
  t->buffer_ = "{\"trace\":\"sluice\",\"version\":1,\"sms\":" + std::to_string(sms) +
               ",\"begin_ns\":" + std::to_string(now_ns) + "}\n";
  t->flush();
  return t;
}

TraceFile::TraceFile(Fd fd, std::string path, uint64_t limit_bytes, uint64_t now_ns)
    : file_(std::make_unique<BackgroundFile>(std::move(fd))),
      path_(std::move(path)),
      limit_bytes_(limit_bytes),
      begin_ns_(now_ns) {
  buffer_.reserve(kBlockBytes + 1024);
}
TraceFile::~TraceFile() { flush(); }

void TraceFile::share(uint64_t now_ns, core::VgpuId vgpu, const std::string& name,
                      const policy::VgpuShare& share) {
  if (vgpu >= vgpus_.size()) vgpus_.resize(vgpu + 1);
  if (vgpus_[vgpu].name != name) vgpus_[vgpu] = {.name = name};
  line(now_ns, "share", vgpu,
       ",\"weight\":" + std::to_string(share.weight) +
           ",\"priority\":" + std::to_string(share.priority));
}

void TraceFile::event(uint64_t now_ns, core::LogEvent event, core::VgpuId vgpu) {
  if (vgpu >= vgpus_.size() || vgpus_[vgpu].name.empty()) return;
  TracedVgpu& g = vgpus_[vgpu];
  switch (event) {
    case core::LogEvent::kBusy:
      if (!g.busy) line(now_ns, "arrival", vgpu);
      g.busy = true;
      return;
    case core::LogEvent::kIdle:
      if (g.busy) line(now_ns, "idle", vgpu);
      g.busy = false;
      return;
    case core::LogEvent::kGranted:
      if (!g.holds) line(now_ns, "grant", vgpu);
      g.holds = true;
      return;
    case core::LogEvent::kEvictSent:
      if (g.holds) line(now_ns, "evict", vgpu);
      return;
    case core::LogEvent::kLeft:
      // What an earlier sluiced had granted leaves without a grant in this trace.
      if (g.holds)
        line(now_ns, "left", vgpu, g.busy ? ",\"why\":\"evicted\"" : ",\"why\":\"idle\"");
      g.holds = false;
      return;
    default:
      return;
  }
}

void TraceFile::slice(uint64_t now_ns, core::VgpuId vgpu, uint64_t ns) {
  line_ns(now_ns, "slice", vgpu, ns);
}
void TraceFile::used(uint64_t now_ns, core::VgpuId vgpu, uint64_t ns) {
  line_ns(now_ns, "used", vgpu, ns);
}
void TraceFile::line_ns(uint64_t now_ns, const char* event, core::VgpuId vgpu, uint64_t ns) {
  if (vgpu >= vgpus_.size() || vgpus_[vgpu].name.empty()) return;
  line(now_ns, event, vgpu, ",\"ns\":" + std::to_string(ns));
}

void TraceFile::line(uint64_t now_ns, const char* event, core::VgpuId vgpu,
                     const std::string& rest) {
  if (!file_) return;
  // Names are letters, digits, '.', '_' and '-' (core/names.h): nothing to escape.
  const std::string text = "{\"t\":" + std::to_string(now_ns - begin_ns_) + ",\"event\":\"" +
                           event + "\",\"vgpu\":\"" + vgpus_[vgpu].name + "\"" + rest + "}\n";
  if (written_ + buffer_.size() + text.size() > limit_bytes_)
    return end("it has reached scheduler.trace_limit");
  buffer_ += text;
  if (buffer_.size() >= kBlockBytes) flush();
}

void TraceFile::flush() {
  if (!file_ || buffer_.empty()) return;
  const auto taken = file_->append(buffer_);
  written_ += buffer_.size();
  buffer_.clear();
  if (!taken) end(taken.error().message);
}

void TraceFile::end(const std::string& why) {
  flush();
  if (!file_) return;  // that has failed, and said so
  ended_ = std::move(file_);
  log::warning("trace {} ends: {}", path_, why);
}

}  // namespace sluice
