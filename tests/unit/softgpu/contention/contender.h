// SPDX-License-Identifier: Apache-2.0
// What the tests of several processes on one software GPU share: a softgpu_contender behind pipes,
// and the GPU file as the mediator sees it. Used by tests only.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/softgpu/shared/gpu_file.h"

namespace sluice::softgpu {

// A softgpu_contender and the pipes to it.
class Contender {
 public:
  Contender(const std::string& gpu_file,
            const std::map<std::string, std::string>& environment = {}) {
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC) | ::pipe2(out, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::setenv("SLUICE_SOFT_GPU", gpu_file.c_str(), 1);
      ::setenv("SLUICE_SOFT_MEMORY", "12M", 1);
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      const char* program = std::getenv("SLUICE_TEST_CONTENDER");
      ::execl(program, program, std::getenv("SLUICE_TEST_SOFTCUDA"), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_.reset(in[1]);
    from_.reset(out[0]);
  }
  ~Contender() { kill(); }

  pid_t pid() const { return pid_; }
  void tell(char command) { ASSERT_EQ(::write(to_.get(), &command, 1), 1); }
  long answer() {
    std::string line;
    char c;
    while (::read(from_.get(), &c, 1) == 1) {
      if (c == '\n') return std::stol(line);
      line.push_back(c);
    }
    ADD_FAILURE() << "the contender has died";
    return -1;
  }
  long ask(char command) {
    tell(command);
    return answer();
  }
  // Returns when the process really stands still: one that is stopped while it is taking the GPU
  // would keep it.
  void stop() {
    int status = 0;
    ::kill(pid_, SIGSTOP);
    ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void go_on() { ::kill(pid_, SIGCONT); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  Fd to_, from_;
};

class ContentionTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    char name[] = "/tmp/sluice-gpu-XXXXXX";
    Fd fd(::mkstemp(name));
    path_ = name;
    ::unlink(name);
  }
  void TearDown() override {
    if (file_ != nullptr) ::munmap(file_, kGpuFileBytes);
    ::unlink(path_.c_str());
  }
  // The file as the mediator has it: read-only.
  const std::byte* file() {
    if (file_ == nullptr) {
      Fd fd(::open(path_.c_str(), O_RDONLY));
      file_ = ::mmap(nullptr, kGpuFileBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
      EXPECT_NE(file_, MAP_FAILED);
    }
    return static_cast<const std::byte*>(file_);
  }
  uint32_t status0() {
    return __atomic_load_n(
        reinterpret_cast<const uint32_t*>(file() + SLUICE_REG_ENGINE_STATUS0(kRunlistBase, 0)),
        __ATOMIC_SEQ_CST);
  }
  const GpuState& state() {
    return *reinterpret_cast<const GpuState*>(file() + SLUICE_SOFT_STATE_OFFSET);
  }
  // A copy: the words are others'.
  sluice_soft_channel channel(uint32_t tsgid) {
    sluice_soft_channel copy;
    std::memcpy(&copy,
                file() + SLUICE_SOFT_CHANNELS_OFFSET + (tsgid - 1) * SLUICE_SOFT_CHANNEL_BYTES,
                sizeof copy);
    return copy;
  }
  const sluice_soft_faults& faults() {
    return *reinterpret_cast<const sluice_soft_faults*>(file() + SLUICE_SOFT_FAULTS_OFFSET);
  }
  uint32_t running() {
    return SLUICE_STATUS0_BUSY(status0()) ? SLUICE_STATUS0_TSGID(status0()) : 0;
  }
  void await_running(uint32_t tsgid) {
    while (running() != tsgid) ::usleep(200);
  }
  void await_waiting(uint32_t tsgid) {
    while ((state().waiting.load() >> (tsgid - 1) & 1) == 0) ::usleep(200);
  }

  std::string path_;
  void* file_ = nullptr;
};

}  // namespace sluice::softgpu
