//go:build linux

package filelock

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// BenchmarkPair is an acquire and a release of a free name, beside what the
// same costs with flock(2) by hand: target 1.2 times that.
func BenchmarkPair(b *testing.B) {
	b.Run("holdfast", func(b *testing.B) {
		s, err := New(b.TempDir(), nil)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		req := &driver.AcquireRequest{Name: driver.Name{Key: "bench", Full: "bench"}, Label: "host/1/bench", Mode: driver.Exclusive}
		rel := &driver.ReleaseRequest{Ref: driver.Ref{Name: req.Name, Mode: req.Mode}}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			req.Owner[0], req.Owner[1], req.Owner[2] = byte(i), byte(i>>8), byte(i>>16)
			res, err := s.Acquire(b.Context(), req)
			if err != nil || res.Status != driver.Granted {
				b.Fatal(res, err)
			}
			rel.Owner, rel.Token = req.Owner, res.Grant.Token
			if ok, err := s.Release(b.Context(), rel); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("flock", func(b *testing.B) {
		path := b.TempDir() + "/lock"
		for b.Loop() {
			fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			_ = syscall.Flock(fd, syscall.LOCK_EX)
			_ = syscall.Flock(fd, syscall.LOCK_UN)
			syscall.Close(fd)
		}
	})
	b.Run("flock-os", func(b *testing.B) { // as gofrs/flock does it
		path := b.TempDir() + "/lock"
		for b.Loop() {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
			f.Close()
		}
	})
}

// BenchmarkHandOver is a contended hand-over between 4 processes of 4 callers
// each, beside the same with flock(2) by hand, in which every caller blocks.
// In the store one waiter a process is at the gate (package holdfast sees to
// that; here it is a mutex).
func BenchmarkHandOver(b *testing.B) {
	for _, how := range []string{"holdfast 4", "flock 4", "holdfast 1", "flock 1", "holdfast held 50µs 1", "flock held 50µs 1"} {
		b.Run(how, func(b *testing.B) {
			dir := b.TempDir()
			const processes = 4
			var children []*child
			for range processes {
				children = append(children, start(b, command("contender", dir, how)))
			}
			least, sum := -1, 0
			const span = 2 * time.Second
			for _, ch := range children {
				if _, err := fmt.Fprintln(ch.in, span); err != nil {
					b.Fatal(err)
				}
			}
			for _, ch := range children {
				var n int
				if _, err := fmt.Sscan(ch.say(""), &n); err != nil {
					b.Fatal(err)
				}
				if sum += n; least < 0 || n < least {
					least = n
				}
			}
			b.ReportMetric(float64(sum)/span.Seconds(), "grants/s")
			b.ReportMetric(float64(least)*processes/float64(sum), "least/mean")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func playContender(dir, how string) int {
	st, err := New(dir, nil)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	s := st.(*store) //nolint:errcheck // New makes no other
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	span, err := time.ParseDuration(lines.Text())
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	end := time.Now().Add(span)
	work := func() {
		start := time.Now()
		for spins := 0; strings.Contains(how, "held") && time.Since(start) < 50*time.Microsecond; {
			spins++
		}
	}
	var turn sync.Mutex
	counts := make([]int, 4)
	if strings.HasSuffix(how, "1") {
		counts = make([]int, 1)
	}
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			req := request("k", driver.Exclusive)
			for time.Now().Before(end) {
				if strings.HasPrefix(how, "flock") {
					flockOnce(dir+"/flock", work)
				} else {
					turn.Lock()
					binary.NativeEndian.PutUint64(req.Owner[:], uint64(i)<<40+uint64(counts[i])) //nolint:gosec // positive
					g, err := s.Block(context.Background(), req)
					if err != nil {
						fmt.Fprintln(os.Stdout, err)
					}
					work()
					_, _ = s.Release(context.Background(), &driver.ReleaseRequest{Ref: driver.Ref{Owner: req.Owner, Token: g.Token}})
					turn.Unlock()
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	fmt.Fprintln(os.Stdout, sum)
	return 0
}

func flockOnce(path string, work func()) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	defer f.Close()
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	work()
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
}

// BenchmarkWake is the time from a release to the grant of a waiter that is
// parked, beside a thread that is blocked in flock(2).
func BenchmarkWake(b *testing.B) {
	b.Run("holdfast", func(b *testing.B) {
		dir := b.TempDir()
		one, two := openStore(b, dir, nil), openStore(b, dir, nil)
		b.StopTimer()
		for range b.N {
			g := one.hold("k", driver.Exclusive)
			w := two.wait("k", driver.Exclusive)
			until(b, "parked", func() bool { return crowded(dir, "k") })
			b.StartTimer()
			g.release()
			<-w.done
			b.StopTimer()
			w.grip.release()
		}
	})
	b.Run("at the gate", func(b *testing.B) {
		dir := b.TempDir()
		one, two := openStore(b, dir, nil), openStore(b, dir, nil)
		b.StopTimer()
		for range b.N {
			g := one.hold("k", driver.Shared)
			w := two.wait("k", driver.Exclusive)
			until(b, "waiting", func() bool { return gateWaited(dir, "k") })
			b.StartTimer()
			g.release()
			<-w.done
			b.StopTimer()
			w.grip.release()
		}
	})
	b.Run("flock", func(b *testing.B) {
		path := b.TempDir() + "/lock"
		b.StopTimer()
		for range b.N {
			f, err := os.Create(path)
			if err != nil {
				b.Fatal(err)
			}
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			go func() { flockOnce(path, func() {}); close(done) }()
			<-time.After(2 * time.Millisecond)
			b.StartTimer()
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
			<-done
			b.StopTimer()
			f.Close()
		}
	})
}
