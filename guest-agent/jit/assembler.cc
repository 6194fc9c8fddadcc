// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/jit/assembler.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "guest-agent/jit/carried_ptx.h"

namespace sluice::jit {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_file(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

std::vector<std::string> own_arguments() {
  const std::string line = contents("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find('\0', at), line.size());
    arguments.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return arguments;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// In place: whoever has the file open sees it. What does not fit is undone.
void replace(const std::string& path, const std::string& before, const std::string& after) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (!write_all(fd, after) && ::lseek(fd, 0, SEEK_SET) == 0 && write_all(fd, before))
      [[maybe_unused]]
    const int r = ::ftruncate(fd, static_cast<off_t>(before.size()));
  ::close(fd);
}

// Ends as the child has ended.
[[noreturn]] void end_as(int status) {
  if (WIFSIGNALED(status)) {
    ::signal(WTERMSIG(status), SIG_DFL);
    ::raise(WTERMSIG(status));
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace

bool is_assembler(std::string_view executable) {
  return executable.substr(executable.rfind('/') + 1).starts_with("ptxas");
}

Assembly assembly_of(const std::vector<std::string>& arguments) {
  Assembly found;
  std::string output = "elf.o";  // ptxas's own default
  int inputs = 0;
  bool linked = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-o" || argument == "--output-file") {
      if (++i < arguments.size()) output = arguments[i];
    } else if (const size_t is = argument.find('=');
               is != std::string::npos &&
               (argument.substr(0, is) == "-o" || argument.substr(0, is) == "--output-file")) {
      output = argument.substr(is + 1);
    } else if (argument == "-c" || argument == "--compile-only") {
      linked = true;
    } else if (!argument.starts_with("-") && is_file(argument) &&
               !ptx_of_input(contents(argument), 0).empty()) {
      found.input = argument;
      ++inputs;
    }
  }
  if (inputs == 1 && !linked) found.output = output;
  return found;
}

void supervise_assembler() {
  const Assembly assembly = assembly_of(own_arguments());
  if (assembly.output.empty()) return;
  const std::string ptx = contents(assembly.input);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return;
  if (child == 0) {  // whoever ends ptxas ends the parent
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    return;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) ::_exit(1);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && is_file(assembly.output)) {
    const std::string code = contents(assembly.output);
    const std::string carried = with_ptx(code, ptx, "ptxas");
    if (!carried.empty()) replace(assembly.output, code, carried);
  }
  end_as(status);
}

}  // namespace sluice::jit
