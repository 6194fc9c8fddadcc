// SPDX-License-Identifier: Apache-2.0
// sluice-worker: executes the CUDA calls of one guest process.
//
// sluiced starts it with one SOCK_SEQPACKET socket as descriptor 3 and nothing else of its own. It
// takes Start from there, maps the vGPU's region at the address where the guest's process has it,
// and the stub pages, loads the CUDA driver (NVIDIA's or the software GPU), gives up what it does
// not need (process/sandbox.h), says Ready, and serves its slot until the session ends; then it
// exits, and whatever it held goes with it. With Witness in place of Start it serves no guest
// (witness/witness.h).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"
#include "mediator/worker/calls/decode.h"
#include "mediator/worker/process/sandbox.h"
#include "mediator/worker/session/worker_session.h"
#include "mediator/worker/witness/witness.h"

namespace {

using namespace sluice;
using namespace sluice::worker;
namespace wp = sluice::worker_protocol;

struct StartPacket {
  wp::Message message;
  wp::Start start;
};

// What this process is to be.
struct First {
  wp::Type type;
  SessionSetup parts;
  Fd soft_gpu;
};

Result<First> receive_first(int control) {
  StartPacket packet{};
  auto got = receive_with_fds(control, &packet, sizeof packet);
  if (!got) return std::move(got).error();
  const wp::Type type = packet.message.type;
  const bool known = type == wp::Type::kStart || type == wp::Type::kWitness;
  if (got->bytes >= sizeof packet.message + sizeof packet.start.version && known &&
      packet.start.version != wp::kVersion)
    return Error{EPROTO,
                 "sluiced and sluice-worker are of different releases: the package sluice is "
                 "being upgraded, or sluiced was not started anew since"};
  const size_t fixed = type == wp::Type::kStart ? size_t{wp::kStartFdCount} : 0;
  if (got->bytes != sizeof packet || !known || got->fds.size() < fixed ||
      got->fds.size() > fixed + (packet.start.soft_gpu_file[0] ? 1u : 0u)) {
    return Error{EPROTO, "the first message is not a Start of this version"};
  }
  First first{.type = type, .parts = {}, .soft_gpu = {}};
  if (static_cast<size_t>(packet.start.signal) >= std::size(wp::kSignalNames) ||
      packet.start.fixed_chunk > kMaxChunk) {
    return Error{EPROTO, "Start names a signal or a chunk that there is not"};
  }
  SessionSetup& parts = first.parts;
  parts.start = packet.start;
  parts.start.library[sizeof parts.start.library - 1] = 0;
  parts.start.soft_gpu_file[sizeof parts.start.soft_gpu_file - 1] = 0;
  parts.start.vgpu[sizeof parts.start.vgpu - 1] = 0;
  if (got->fds.size() > fixed) first.soft_gpu = std::move(got->fds[fixed]);
  got->fds.resize(fixed);
  parts.fds = std::move(got->fds);
  return first;
}

Result<void*> map(int fd, size_t bytes, int protection, void* at, const char* what) {
  struct stat st;
  // A shorter file would end us with SIGBUS at the first access.
  if (::fstat(fd, &st) != 0) return Error::from_errno(what);
  if (static_cast<uint64_t>(st.st_size) < bytes)
    return Error{EINVAL, std::string(what) + " is too small"};
  void* p = ::mmap(at, bytes, protection, MAP_SHARED | (at ? MAP_FIXED_NOREPLACE : 0), fd, 0);
  if (p == MAP_FAILED) return Error::from_errno(std::string("mapping ") + what);
  if (at && p != at) {
    ::munmap(p, bytes);
    return Error{EADDRINUSE, std::string("mapping ") + what + ": the address is taken"};
  }
  return p;
}

Result<void> map_all(SessionSetup& parts) {
  const wp::Start& s = parts.start;
  const uint64_t slot_end =
      SLUICE_SLOT_OFFSET + (uint64_t{s.slot} + 1) * uint64_t{SLUICE_SLOT_STRIDE};
  if (s.slot >= SLUICE_MAX_SLOTS || s.region_bytes > SLUICE_WINDOW_BYTES ||
      slot_end > s.region_bytes || s.staging_offset > s.region_bytes ||
      s.staging_bytes > s.region_bytes - s.staging_offset) {
    return Error{EINVAL, "Start does not fit its region"};
  }
  auto region = map(parts.fds[wp::kRegionFd].get(), s.region_bytes, PROT_READ | PROT_WRITE,
                    reinterpret_cast<void*>(SLUICE_WINDOW_ADDRESS), "the region");
  if (!region) return std::move(region).error();
  parts.region = static_cast<uint8_t*>(*region);
  auto host = map(parts.fds[wp::kHostFd].get(), SLUICE_STUB_PAGE_BYTES, PROT_READ, nullptr,
                  "the host page");
  if (!host) return std::move(host).error();
  parts.host = static_cast<const sluice_host_page*>(*host);
  // Writable only because the driver's pinning of it may need that; this process stores nothing
  // there.
  auto signal = map(parts.fds[wp::kSignalFd].get(), SLUICE_STUB_PAGE_BYTES, PROT_READ | PROT_WRITE,
                    nullptr, "the signal page");
  if (!signal) return std::move(signal).error();
  parts.signal = static_cast<const sluice_signal_page*>(*signal);
  auto report = map(parts.fds[wp::kReportFd].get(), SLUICE_REPORT_BYTES, PROT_READ | PROT_WRITE,
                    nullptr, "the report page");
  if (!report) return std::move(report).error();
  parts.report = static_cast<sluice_report_header*>(*report);
  auto records = map(parts.fds[wp::kRecordsFd].get(), SLUICE_RECORDS_BYTES, PROT_READ | PROT_WRITE,
                     nullptr, "the launch records");
  if (!records) return std::move(records).error();
  parts.records = static_cast<sluice_launch_records*>(*records);
  return {};
}

Result<void> load(SessionSetup& parts, Fd soft_gpu) {
  if (parts.start.soft_gpu_file[0]) ::setenv("SLUICE_SOFT_GPU", parts.start.soft_gpu_file, 1);
  // A module takes its memory when it is loaded, which is when it is charged.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  if (soft_gpu) ::setenv("SLUICE_SOFT_GPU_FD", std::to_string(soft_gpu.release()).c_str(), 1);
  if (parts.start.host_pid)
    ::setenv("SLUICE_SOFT_PID", std::to_string(parts.start.host_pid).c_str(), 1);
  auto api = gpu::load_driver(parts.start.library);
  if (!api) return std::move(api).error();
  parts.api = *api;
  CUresult r = parts.api.cuInit(0);
  if (r != CUDA_SUCCESS) return Error{static_cast<int>(r), "cuInit: " + gpu::describe(r)};
  return {};
}

void say_ready(int control, int code, const std::string& text) {
  wp::Message m{};
  m.type = wp::Type::kReady;
  m.code = code;
  std::memcpy(m.text, text.data(), std::min(text.size(), sizeof m.text - 1));
  (void)send_with_fds(control, &m, sizeof m, {});
}

int fail(const std::string& what, const Error& error) {
  log::error("{}: {}", what, error.message);
  say_ready(wp::kControlFd, error.code != 0 ? error.code : EIO, what + ": " + error.message);
  return 1;
}

// SLUICE_WORKER_SANDBOX=off (sluiced's [worker_environment]) is for finding out whether the filter
// is what a failure comes from; =nvidia, beside the software GPU, for tests of that filter.
Result<void> shut_in(bool nvidia) {
  const char* sandbox = std::getenv("SLUICE_WORKER_SANDBOX");
  if (sandbox && std::strcmp(sandbox, "off") == 0) return {};
  const bool as_nvidia = nvidia || (sandbox && std::strcmp(sandbox, "nvidia") == 0);
  return enter_sandbox(as_nvidia, nvidia && std::getenv("CUDA_MPS_PIPE_DIRECTORY"));
}

int be_witness(First first) {
  if (auto r = load(first.parts, std::move(first.soft_gpu)); !r) return fail("driver", r.error());
  auto witness = Witness::make(first.parts.api);
  if (!witness) return fail("witness", witness.error());
  if (auto r = shut_in(first.parts.start.nvidia != 0); !r) return fail("sandbox", r.error());
  say_ready(wp::kControlFd, 0, "");
  const int status = witness->serve(wp::kControlFd);
  // Drivers have threads: nothing of theirs is taken down while they run.
  std::_Exit(status);
}

}  // namespace

int main() {
  // The kernel names a program that is run by its descriptor after that.
  ::prctl(PR_SET_NAME, "sluice-worker");
  log::init("sluice-worker", log::Level::kInfo);
  if (::fcntl(wp::kControlFd, F_SETFD, FD_CLOEXEC) != 0) {
    log::error("sluice-worker is started by sluiced; there is no socket as descriptor 3");
    return 2;
  }
  close_others(wp::kControlFd);
  auto first = receive_first(wp::kControlFd);
  if (!first) return fail("start", first.error());
  if (first->type == wp::Type::kWitness) return be_witness(*std::move(first));
  SessionSetup& parts = first->parts;
  parts.control = Fd(wp::kControlFd);
  if (auto r = map_all(parts); !r) return fail("memory", r.error());
  // Before the driver is there: it may keep the standard output that it finds.
  auto printed = Printed::capture();
  if (!printed) return fail("output", printed.error());
  parts.printed = *std::move(printed);
  if (auto r = load(parts, std::move(first->soft_gpu)); !r) return fail("driver", r.error());
  const bool nvidia = parts.start.nvidia != 0;
  SessionLimits& limits = parts.limits;
  // For tests: a minute is long.
  if (const char* ms = std::getenv("SLUICE_WORKER_ORPHAN_MS"))
    limits.orphan_ms = std::strtoull(ms, nullptr, 10);
  if (const char* ms = std::getenv("SLUICE_WORKER_SEE_OUT_MS"))
    limits.drain_at_end_ms = std::strtoull(ms, nullptr, 10);
  static WorkerSession session(std::move(parts), decode);
  if (auto r = shut_in(nvidia); !r) return fail("sandbox", r.error());
  say_ready(wp::kControlFd, 0, "");
  session.run();
  return 0;
}
