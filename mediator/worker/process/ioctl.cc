// SPDX-License-Identifier: Apache-2.0
// `ioctl` as this program and the libraries that it loads see it (channel_groups.h): the system
// call, and a look at what it was. The linker exports it.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "mediator/worker/process/channel_groups.h"

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const int r = static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
  if (r >= 0) {
    const int error = errno;
    sluice::worker::ChannelGroups::of_process().on_called(fd, request, argument);
    errno = error;
  }
  return r;
}
