// SPDX-License-Identifier: Apache-2.0
// Preloaded, it steps the time of day: whoever asks for it is an hour earlier or two later than at
// the time before, as on a host whose clock is set again and again. Other clocks are as they were.
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t step(int64_t seconds) {
  static int64_t calls;
  const int64_t call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  // Back for an hour each, and once in eight calls all the way and further.
  return seconds - 3600 * (call % 8) + 7200 * (call / 8 % 100);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const long failed = syscall(SYS_clock_gettime, clock, time);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    time->tv_sec = step(time->tv_sec);
  return (int)failed;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  struct timespec now;
  const int failed = clock_gettime(CLOCK_REALTIME, &now);
  if (failed == 0) *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return failed;
}

time_t time(time_t* result) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}
