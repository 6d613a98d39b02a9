package redistest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Clock bends the wall clock of servers that run with it.
type Clock struct {
	dir    string
	offset string // the file from which they read it
}

// shim stands before the C library and adds the offset, in µs, to the time of
// day. The monotonic clock goes on as it does.
const shim = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *offset;
__attribute__((constructor)) static void start(void) {
  int fd = open(getenv("REDISTEST_CLOCK"), O_RDONLY);
  void *p = mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
  if (p != MAP_FAILED) offset = p;
}
int clock_gettime(clockid_t id, struct timespec *ts) {
  int r = syscall(SYS_clock_gettime, id, ts);
  if (r == 0 && id == CLOCK_REALTIME && offset) {
    int64_t ns = ts->tv_nsec + (*offset % 1000000) * 1000;
    ts->tv_sec += *offset / 1000000 + (ns >= 1000000000) - (ns < 0);
    ts->tv_nsec = (ns + 1000000000) % 1000000000;
  }
  return r;
}
int gettimeofday(struct timeval *tv, void *tz) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  tv->tv_sec = ts.tv_sec;
  tv->tv_usec = ts.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *t) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (t) *t = ts.tv_sec;
  return ts.tv_sec;
}
`

// NewClock makes a clock that is right to begin with. It needs a C compiler, as
// the race detector does.
func NewClock() (*Clock, error) {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	c := &Clock{dir: dir, offset: filepath.Join(dir, "offset")}
	return c, errors.Join(c.build(), c.Set(0))
}

func (c *Clock) build() error {
	source := filepath.Join(c.dir, "clock.c")
	if err := os.WriteFile(source, []byte(shim), 0o600); err != nil {
		return err
	}
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", c.library(), source).CombinedOutput() //nolint:noctx // it takes a moment
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (c *Clock) library() string { return filepath.Join(c.dir, "clock.so") }

// Set sets how far the clock is ahead of the right time.
func (c *Clock) Set(ahead time.Duration) error {
	file, err := os.OpenFile(c.offset, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Microseconds())), 0) //nolint:gosec // the bits of it
	return err
}

// Start is the function Start with this clock.
func (c *Clock) Start(v Version, args ...string) (*Server, error) {
	return startWith(v, []string{"LD_PRELOAD=" + c.library(), "REDISTEST_CLOCK=" + c.offset}, plainArgs(args))
}

// Remove removes its folder.
func (c *Clock) Remove() { _ = os.RemoveAll(c.dir) }
