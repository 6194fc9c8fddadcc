// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/config.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "mediator/ring/wait.h"

namespace sluice {

worker_protocol::Signal Config::signal_for(bool nvidia) const {
  // Measured (docs/notes/2026-11-22-benchmarks.md): the proxy tells an H200 soonest. The software
  // GPU's blocks read the host's memory as fast as any other.
  return signal.value_or(nvidia ? worker_protocol::Signal::kProxy : worker_protocol::Signal::kHost);
}

// On NVIDIA's GPUs a guess for those of some 130 SMs; on the software GPU what it takes itself
// (SLUICE_SOFT_CONTEXT_BYTES) and what the worker has there of its own.
uint64_t Config::context_bytes_for(bool nvidia) const {
  return context_memory_bytes.value_or(nvidia ? 528ull << 20 : 8ull << 20);
}

// What a first kernel that spins costs its neighbours. On the software GPU workers may have to wait
// for a processor for as long as on no GPU.
uint32_t DeadlinesKeys::evict_end_for(bool nvidia) const {
  return evict_end_ms.value_or(nvidia ? std::max(500u, evict_warn_ms) : 2000u);
}

// Where turns are priorities a visit costs next to nothing, and work up to the least quantum goes
// before others' turns. So long that a visit that waits for blocks of 1 ms is one of them: with the
// policies' own 1 ms every second visit waited for a whole turn (docs/decisions/0011-turns.md).
uint32_t SchedulerKeys::least_quantum_us() const {
  constexpr uint32_t kWithPriorities = 5000;
  const uint32_t by_default = turns_by_priority
                                  ? kWithPriorities
                                  : static_cast<uint32_t>(policy::Config{}.min_quantum_ns / 1000);
  return quantum_min_us.value_or(std::min(by_default, quantum_max_us));
}

bool Config::slices_for(bool nvidia, bool measured) const {
  return nvidia && measured && !side_by_side() && !turns_given;
}

// On a small machine others need the processors more.
uint32_t WorkersKeys::spin_processors_for(uint32_t processors) const {
  return spin_processors.value_or(processors < Spinner::kManyProcessors ? 0 : processors / 4);
}

uint32_t Config::chunk_target_for(bool nvidia) const {
  if (chunk_target_us != 0) return chunk_target_us;
  // 20 us as measured on an H200 (docs/notes/2026-11-22-benchmarks.md). A task of the interpreter
  // often takes longer than that, and then each would be a chunk of its own.
  return nvidia ? 20 : 200;
}

std::string Config::admin_socket_path() const {
  return admin_socket.empty() ? runtime_dir + "/admin.sock" : admin_socket;
}
std::string Config::soft_gpu_path() const {
  return soft_file.empty() ? runtime_dir + "/softgpu" : soft_file;
}

Result<Config> load_config(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> f(std::fopen(path.c_str(), "re"), &std::fclose);
  if (!f) return Error::from_errno("open " + path);
  std::string text;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, f.get())) {
    text.append(buffer, n);
    if (text.size() > (1u << 20)) return Error{E2BIG, path + " has more than 1 MiB"};
  }
  if (std::ferror(f.get())) return Error::from_errno("read " + path);
  return parse_config(text, path);
}

Error of_key(const std::string& key, const Error& why, const std::string& remedy) {
  return {why.code, key + ": " + why.message + "; " + remedy};
}

}  // namespace sluice
