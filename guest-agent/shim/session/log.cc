// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/session/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "abi/cuda_driver.h"

namespace sluice::guest {
namespace {

// -1: SLUICE_LOG is not set.
int log_fd() {
  static const int fd = [] {
    const char* to = ::getenv("SLUICE_LOG");
    if (to == nullptr || *to == '\0') return -1;
    if (std::strcmp(to, "stderr") == 0) return STDERR_FILENO;
    return ::open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }();
  return fd;
}

// One write per line, so that lines of several processes stay whole.
void write_line(int fd, const char* text) {
  std::string line = "sluice[" + std::to_string(::getpid()) + "]: " + text + "\n";
  [[maybe_unused]] ssize_t n = ::write(fd, line.data(), line.size());
}

}  // namespace

bool logging() { return log_fd() >= 0; }

void log_line(const char* format, ...) {
  if (!logging()) return;
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  write_line(log_fd(), text);
}

void trace_line(const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  write_line(logging() ? log_fd() : STDERR_FILENO, text);
}

void complain_once(const char* text) {
  // Leaked: a program may call us from its last destructors.
  static auto* mutex = new std::mutex;
  static auto* said = new std::set<std::string>;
  {
    std::lock_guard lock(*mutex);
    if (!said->insert(text).second) return;
  }
  write_line(logging() ? log_fd() : STDERR_FILENO, text);
}

int not_supported(const char* function, const char* detail) {
  std::string text = std::string(function) + " is not supported";
  if (detail != nullptr) text += std::string(": ") + detail;
  complain_once(text.c_str());
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace sluice::guest
