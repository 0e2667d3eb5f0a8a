// Shows one process other clocks than the rest of the machine (LD_PRELOAD): CLOCK_AHEAD seconds on the clock of the day,
// and CLOCK_RATE as many seconds per second on all clocks, from its start on.
//
// Waits of Rust's standard library name a moment of CLOCK_MONOTONIC (futex); the kernel gets the true one. Waits that name
// a length are left as they are: a clock that drifts by a few percent makes them as much wrong as it would.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CLOCKS 16
#define SECOND 1000000000LL

static double rate = 1.0;
static int64_t ahead;
static int64_t begin[CLOCKS];
static long (*true_syscall)(long, ...);

static int64_t true_ns(clockid_t clock, struct timespec *at) {
  // Not by the library: its function is the one below.
  if (true_syscall(SYS_clock_gettime, (long)clock, (long)at) != 0) return -1;
  return at->tv_sec * SECOND + at->tv_nsec;
}

__attribute__((constructor)) static void start(void) {
  struct timespec at;
  const char *words = getenv("CLOCK_RATE");
  true_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  if (words != NULL) rate = atof(words);
  words = getenv("CLOCK_AHEAD");
  if (words != NULL) ahead = (int64_t)(atof(words) * 1e9);
  for (int clock = 0; clock < CLOCKS; clock++) begin[clock] = true_ns(clock, &at);
}

static int is_shown_wrong(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
      return 1;
    default:
      return 0;
  }
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  if (true_syscall == NULL) start();
  int64_t ns = true_ns(clock, at);
  if (ns < 0) return -1;
  if (!is_shown_wrong(clock)) return 0;
  ns = begin[clock] + (int64_t)((double)(ns - begin[clock]) * rate);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) ns += ahead;
  at->tv_sec = ns / SECOND;
  at->tv_nsec = ns % SECOND;
  return 0;
}

long syscall(long number, ...) {
  long a[6];
  struct timespec until;
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  if (true_syscall == NULL) start();
  int what = (int)a[1] & FUTEX_CMD_MASK;
  if (number == SYS_futex && what == FUTEX_WAIT_BITSET && a[3] != 0 && ((int)a[1] & FUTEX_CLOCK_REALTIME) == 0) {
    const struct timespec *shown = (const struct timespec *)a[3];
    int64_t from = begin[CLOCK_MONOTONIC];
    int64_t ns = from + (int64_t)((double)(shown->tv_sec * SECOND + shown->tv_nsec - from) / rate);
    until.tv_sec = ns / SECOND;
    until.tv_nsec = ns % SECOND;
    a[3] = (long)&until;
  }
  return true_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
