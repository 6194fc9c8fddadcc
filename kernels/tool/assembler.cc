// SPDX-License-Identifier: Apache-2.0
#include "kernels/tool/assembler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

extern char** environ;

namespace sluice::tool {

namespace {

// A file of its own in the folder for temporary files, gone with the object.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder ? folder : "/tmp") + "/sluice-ptx-XXXXXX";
    const int fd = ::mkstemp(path_.data());
    if (fd >= 0) ::close(fd);
    made_ = fd >= 0;
  }
  ~TemporaryFile() {
    if (made_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

// The number in front of `word` in `line`; 0: none.
std::uint64_t number_before(const std::string& line, const std::string& word) {
  const std::size_t at = line.find(word);
  if (at == line.npos) return 0;
  std::size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  return std::strtoull(line.substr(begin, at - begin).c_str(), nullptr, 10);
}

std::string name_in_quotes(const std::string& line) {
  const std::size_t begin = line.find('\'');
  const std::size_t end = line.find('\'', begin + 1);
  return begin == line.npos || end == line.npos ? std::string()
                                                : line.substr(begin + 1, end - begin - 1);
}

}  // namespace

std::string find_assembler() {
  if (const char* given = std::getenv("SLUICE_PTXAS")) return given;
  std::string folders = std::getenv("PATH") ? std::getenv("PATH") : "";
  std::stringstream all(folders + ":/usr/local/cuda/bin");
  for (std::string folder; std::getline(all, folder, ':');)
    if (!folder.empty() && ::access((folder + "/ptxas").c_str(), X_OK) == 0)
      return folder + "/ptxas";
  return {};
}

std::map<std::string, Resources> assemble(const std::string& assembler, const std::string& target,
                                          const std::string& ptx) {
  std::map<std::string, Resources> out;
  TemporaryFile input, log;
  std::ofstream(input.path(), std::ios::binary) << ptx;
  std::vector<std::string> words = {assembler, "-v",        "-c",        "-arch=" + target,
                                    "-o",      "/dev/null", input.path()};
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (int fd : {1, 2})
    ::posix_spawn_file_actions_addopen(&actions, fd, log.path().c_str(), O_WRONLY | O_APPEND, 0600);
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, assembler.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed != 0 || ::waitpid(child, &status, 0) != child || status != 0) return out;

  // ptxas info : Compiling entry function 'k' for 'sm_90'
  // ptxas info : Function properties for k \n  0 bytes stack frame, 0 bytes spill stores, ...
  // ptxas info : Used 8 registers, 16 bytes smem, ...
  std::ifstream lines(log.path());
  Resources* current = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Compiling entry function") != line.npos) {
      current = &out[name_in_quotes(line)];
    } else if (current && line.find("spill stores") != line.npos) {
      current->spill_bytes +=
          number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    } else if (current && line.find("Used ") != line.npos) {
      current->registers = static_cast<std::uint32_t>(number_before(line, " registers"));
      current->shared_bytes = number_before(line, " bytes smem");
    }
  }
  return out;
}

}  // namespace sluice::tool
