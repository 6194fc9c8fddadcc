// SPDX-License-Identifier: Apache-2.0
// Whether NVIDIA's kernel module keeps the processes of two users apart. A process has a context;
// another one knows its handles, as one that took over a worker might guess them, and tries to
// lengthen its time slice, to free its channel group and then all that it has. By hand, as root, on
// a GPU, natively:
//
//   others-groups [LIBRARY]
//
// A line for each attempt, "NAME as USER: refused (status)" or "DONE". Exit 0: another user was
// refused everything, and the context's owner could do the first itself; 77: there is no GPU.
// What the same user may do is printed only: workers of two vGPUs never have one user.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

// NVIDIA's open kernel modules, nv_escape.h and nvos.h (mediator/worker/process/channel_groups.cc).
constexpr unsigned kMagic = 'F', kFree = 0x29, kControl = 0x2a, kAlloc = 0x2b;
constexpr uint32_t kChannelGroup = 0xa06c, kSetTimeslice = 0xa06c0103;
constexpr uid_t kOther = 65534;

struct Group {
  uint32_t client, handle;
};
std::vector<Group>& groups() {
  static std::vector<Group> all;
  return all;
}

struct Control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t bytes, status;
};
struct Freeing {
  uint32_t client, parent, handle, status;
};

long call(int fd, unsigned number, size_t bytes, void* argument) {
  return ::syscall(SYS_ioctl, fd, _IOC(_IOC_READ | _IOC_WRITE, kMagic, number, bytes), argument);
}

bool say(const char* what, const char* who, long result, uint32_t status) {
  const bool done = result == 0 && status == 0;
  std::printf("%s as %s: %s (%ld, status 0x%x)\n", what, who, done ? "DONE" : "refused", result,
              status);
  std::fflush(stdout);
  return done;
}

bool lengthen(int fd, const Group& g, const char* who) {
  uint64_t us = 10'000'000;
  Control c{g.client, g.handle, kSetTimeslice, 0, reinterpret_cast<uint64_t>(&us), sizeof us, 0};
  const long r = call(fd, kControl, sizeof c, &c);
  return say("set a slice of 10 s", who, r, c.status);
}

bool free_it(int fd, const Group& g, uint32_t handle, const char* what, const char* who) {
  Freeing f{g.client, 0, handle, 0};
  const long r = call(fd, kFree, sizeof f, &f);
  return say(what, who, r, f.status);
}

// A process of another user, or of the same, with device files of its own. How many succeeded.
int attack(uid_t user, bool destructive) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const char* who = user == 0 ? "the same user" : "another user";
    if (user != 0 && (::setgid(user) != 0 || ::setuid(user) != 0)) ::_exit(100);
    const int fd = ::open("/dev/nvidiactl", O_RDWR);
    if (fd < 0) ::_exit(101);
    int done = 0;
    for (const Group& g : groups()) {
      done += lengthen(fd, g, who);
      if (!destructive) continue;
      done += free_it(fd, g, g.handle, "free a channel group", who);
      done += free_it(fd, g, g.client, "free all that it has", who);
    }
    ::_exit(done);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 102;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const int r = static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
  if (r >= 0 && _IOC_TYPE(request) == kMagic && _IOC_NR(request) == kAlloc) {
    uint32_t words[4];  // client, parent, handle, class
    std::memcpy(words, argument, sizeof words);
    if (words[3] == kChannelGroup) groups().push_back({words[0], words[2]});
  }
  return r;
}

int main(int argc, char** argv) {
  void* driver = ::dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
  if (!driver) return 77;
  auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  auto create = reinterpret_cast<int (*)(void**, int)>(::dlsym(driver, "cuDevicePrimaryCtxRetain"));
  auto current = reinterpret_cast<int (*)(void*)>(::dlsym(driver, "cuCtxSetCurrent"));
  auto wait = reinterpret_cast<int (*)()>(::dlsym(driver, "cuCtxSynchronize"));
  auto take = reinterpret_cast<int (*)(uint64_t*, size_t)>(::dlsym(driver, "cuMemAlloc_v2"));
  void* context = nullptr;
  if (!init || init(0) != 0 || create(&context, 0) != 0 || current(context) != 0) return 77;
  std::printf("%zu channel groups\n", groups().size());
  if (groups().empty()) return 77;
  const int own = ::open("/dev/nvidiactl", O_RDWR);
  const bool itself = lengthen(own, groups().front(), "its owner");
  const int other = attack(kOther, true);
  uint64_t memory = 0;
  const int works = wait() != 0 ? 1 : take(&memory, 1 << 20);
  std::printf("after another user's attempts the context %s\n", works == 0 ? "works" : "is broken");
  const int same = attack(0, false);
  std::printf("another user %d, the same user %d\n", other, same);
  return other == 0 && works == 0 && itself ? 0 : 1;
}
