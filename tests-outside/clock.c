// Shows one process other clocks than the rest of the machine (LD_PRELOAD): CLOCK_AHEAD seconds on the clock of the day,
// and CLOCK_RATE as many seconds per second on all clocks, from its start on. The file that CLOCK_FILE names holds two more
// numbers of seconds, for the clock of the day and for all others, and may change at any time: without it both are 0.
//
// Waits of Rust's standard library name a moment of CLOCK_MONOTONIC (futex, sleeps); the kernel gets the true one. Waits that name
// a length are left as they are: a clock that drifts by a few percent makes them as much wrong as it would.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CLOCKS 16
#define SECOND 1000000000LL
// How often the file is looked at.
#define LOOK (SECOND / 4)

static double rate = 1.0;
static int64_t ahead;
static const char *file;
static _Atomic int64_t looked;
// What the file says: seconds more.
static _Atomic int64_t day_more, more;
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
  file = getenv("CLOCK_FILE");
  words = getenv("CLOCK_AHEAD");
  if (words != NULL) ahead = (int64_t)(atof(words) * 1e9);
  for (int clock = 0; clock < CLOCKS; clock++) begin[clock] = true_ns(clock, &at);
}

// Looks at the file, if that was not just done.
static void look(void) {
  struct timespec at;
  char said[64];
  long long day = 0, others = 0;
  int64_t now, last = looked;
  if (file == NULL || (now = true_ns(CLOCK_MONOTONIC, &at)) < last + LOOK) return;
  if (!atomic_compare_exchange_strong(&looked, &last, now)) return;
  long from = true_syscall(SYS_openat, (long)AT_FDCWD, (long)file, (long)(O_RDONLY | O_CLOEXEC), 0L);
  if (from >= 0) {
    long got = true_syscall(SYS_read, from, (long)said, (long)(sizeof said - 1));
    true_syscall(SYS_close, from);
    said[got > 0 ? got : 0] = 0;
    // One that is just being written says nothing yet.
    if (sscanf(said, "%lld %lld", &day, &others) != 2) return;
  }
  day_more = day * SECOND;
  more = others * SECOND;
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
  look();
  ns = begin[clock] + (int64_t)((double)(ns - begin[clock]) * rate);
  ns += clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? ahead + day_more : more;
  at->tv_sec = ns / SECOND;
  at->tv_nsec = ns % SECOND;
  return 0;
}

// The true moment of CLOCK_MONOTONIC that is shown as this.
static struct timespec truly(const struct timespec *shown) {
  int64_t from = begin[CLOCK_MONOTONIC];
  int64_t ns = from + (int64_t)((double)(shown->tv_sec * SECOND + shown->tv_nsec - more - from) / rate);
  return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *shown, struct timespec *left) {
  struct timespec until;
  if (true_syscall == NULL) start();
  if (clock == CLOCK_MONOTONIC && (flags & TIMER_ABSTIME) != 0) {
    until = truly(shown);
    shown = &until;
  }
  return true_syscall(SYS_clock_nanosleep, (long)clock, (long)flags, (long)shown, (long)left) == 0 ? 0 : errno;
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
    until = truly((const struct timespec *)a[3]);
    a[3] = (long)&until;
  }
  return true_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
