// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/agent/kernels.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "mediator/base/fd.h"

namespace sluice::guest {
namespace {

// A log beyond this is cut: nobody reads a table of this many kernels.
constexpr std::streamoff kMostLogBytes = 64 << 20;

// By words of the reasons that the guest's libcuda and the rewriter give.
std::string mend_of(std::string_view why) {
  const auto says = [&](std::string_view words) { return why.find(words) != why.npos; };
  if (says("machine code"))
    return "compile with PTX as well (nvcc -arch=sm_90 keeps both); of a program that compiles at "
           "run time: start it by sluice-run";
  if (says("waits for"))
    return "none while its blocks wait for others that may not have started: wait for lower-"
           "numbered blocks only, or end the kernel and launch another";
  if (says("cooperative") || says("grid barrier"))
    return "grid-wide synchronisation keeps all blocks on the GPU: launch a kernel for each phase";
  if (says("cluster")) return "clusters stay together: launch without them";
  return "";
}

std::string quoted_for_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

void read_kernel_line(std::string_view line, std::map<std::string, KernelRow>* rows) {
  constexpr std::string_view kLineBegins = "sluice[", kOfKernel = "]: kernel ";
  const size_t at = line.find(kOfKernel);
  if (!line.starts_with(kLineBegins) || at == line.npos) return;
  line.remove_prefix(at + kOfKernel.size());
  const size_t colon = line.find(": ");
  if (colon == line.npos || colon == 0) return;
  std::string_view how = line.substr(colon + 2), why;
  if (const size_t more = how.find(": "); more != how.npos) {
    why = how.substr(more + 2);
    how = how.substr(0, more);
  }
  // These say nothing of other launches.
  if (how.starts_with("launched before") || how.starts_with("unloaded before")) return;
  KernelRow row;
  row.evictable = how != "opaque" && how != "no clones";
  row.how = row.evictable ? how : "opaque";
  if (!row.evictable) {
    row.why = how == "no clones" ? "its clones could not be made: " + std::string(why) : why;
    row.mend = mend_of(why);
  }
  (*rows)[std::string(line.substr(0, colon))] = std::move(row);
}

}  // namespace

std::map<std::string, KernelRow> kernels_of_log(std::string_view log) {
  std::map<std::string, KernelRow> rows;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    read_kernel_line(log.substr(0, end), &rows);
    log.remove_prefix(std::min(end + 1, log.size()));
  }
  return rows;
}

std::string as_text(const std::map<std::string, KernelRow>& kernels) {
  size_t evictable = 0;
  for (const auto& [name, row] : kernels) evictable += row.evictable;
  std::string out = std::to_string(kernels.size()) + " kernels, " + std::to_string(evictable) +
                    " can be evicted\n";
  for (const auto& [name, row] : kernels) {
    out += (row.evictable ? "evictable  " : "opaque     ") + name;
    out += row.evictable ? " (" + row.how + ")\n" : "\n           why: " + row.why + "\n";
    if (!row.mend.empty()) out += "           do:  " + row.mend + "\n";
  }
  return out;
}

std::string as_json(const std::map<std::string, KernelRow>& kernels) {
  std::string out = "{\"kernels\": [";
  const char* between = "";
  for (const auto& [name, row] : kernels) {
    out += between;
    out += "{\"name\": " + quoted_for_json(name) +
           ", \"evictable\": " + (row.evictable ? "true" : "false") +
           ", \"how\": " + quoted_for_json(row.how) + ", \"why\": " + quoted_for_json(row.why) +
           ", \"mend\": " + quoted_for_json(row.mend) + "}";
    between = ", ";
  }
  return out + "]}\n";
}

Result<ProgramKernels> run_for_kernels(const std::vector<std::string>& command) {
  char path[] = "/tmp/sluice-kernels.XXXXXX";
  Fd file(::mkostemp(path, O_CLOEXEC));
  if (!file) return Error::from_errno("make a file for the program's log");
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    ::unlink(path);
    return Error::from_errno("start " + command[0]);
  }
  if (child == 0) {
    ::setenv("SLUICE_LOG", path, 1);
    ::setenv("SLUICE_REWRITE", "all", 1);  // also kernels that need no clones as they are launched
    ::execvp(arguments[0], arguments.data());
    ::_exit(errno == ENOENT ? 127 : 126);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) break;
  std::ifstream log(path, std::ios::binary);
  std::string text;
  for (char buffer[1 << 16]; static_cast<std::streamoff>(text.size()) < kMostLogBytes;) {
    log.read(buffer, sizeof buffer);
    if (log.gcount() == 0) break;
    text.append(buffer, static_cast<size_t>(log.gcount()));
  }
  ::unlink(path);
  const int ended = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ProgramKernels{kernels_of_log(text), ended};
}

}  // namespace sluice::guest
