package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// more than all buffers between us and a server that does not read.
var tooMuch = strings.Repeat("x", 6<<20)

// full is a server that has stopped reading, and a connection to it.
type full struct {
	*testing.T
	server *redistest.Server
	link   *directLink
}

// overFull runs a test on a server that has stopped reading, over each kind of connection
// of our own. One call was answered before.
func overFull(t *testing.T, test func(full)) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		t.Run("TLS "+strconv.FormatBool(secure), func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			started, err := redistest.StartTLS(redistest.Default, a.servers())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(started.Remove)
			url := started.URL()
			if secure {
				ca, mine := a.trusting()
				url = "rediss://" + started.TLSAddr() + ca + mine
			}
			link := directTo(t, url)
			if err := echo(t.Context(), link, "before"); err != nil {
				t.Fatal(err)
			}
			started.Signal(syscall.SIGSTOP)
			t.Cleanup(func() { started.Signal(syscall.SIGCONT) })
			test(full{t, started, link})
		})
	}
}

func echo(ctx context.Context, link *directLink, text string) error {
	r := link.Do(ctx, command("ECHO", text))[0]
	if r.Err == nil && r.Text != text {
		return errors.New("the answer to another call")
	}
	return r.Err
}

// inTime makes a call whose ctx ends soon, and wants it to return before the connection is
// given up.
func (f full) inTime(ctx context.Context, text string) error {
	f.Helper()
	began := time.Now()
	err := echo(ctx, f.link, text)
	if took := time.Since(began); err == nil || classify(err) != driver.Indeterminate || took >= stalled {
		f.Errorf("%v, after %v", err, took)
	}
	return err
}

// fails wants a call to have been on the connection, or to have come too late for it.
func (f full) fails(err error) {
	f.Helper()
	if err == nil || classify(err) != driver.Indeterminate && classify(err) != driver.Unavailable {
		f.Error(err)
	}
}

// Who writes more than a server takes returns when his ctx ends, as do those behind him. What
// he had begun is finished when the server reads on, and everybody gets his own answer.
func TestAFullSocket(t *testing.T) {
	t.Parallel()
	overFull(t, func(f full) {
		soon := func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(f.Context(), 200*time.Millisecond)
		}
		var wg sync.WaitGroup
		for _, text := range []string{tooMuch, tooMuch, "small"} {
			wg.Go(func() {
				ctx, cancel := soon()
				defer cancel()
				_ = f.inTime(ctx, text)
			})
		}
		wg.Wait()
		ctx, cancel := soon()
		defer cancel()
		_ = f.inTime(ctx, "small")
		patient := make(chan error, 1)
		go func() { patient <- echo(f.Context(), f.link, "patient") }()
		f.server.Signal(syscall.SIGCONT)
		if err := errors.Join(<-patient, echo(f.Context(), f.link, tooMuch), echo(f.Context(), f.link, "after")); err != nil {
			f.Error(err)
		}
		if n, _ := f.link.Dials(); n != 1 {
			f.Errorf("%d connections", n)
		}
	})
}

// One who gives the connection up ends what was begun on it, for all.
func TestAFullSocketThatIsGivenUp(t *testing.T) {
	t.Parallel()
	overFull(t, func(f full) {
		failed := make(chan error, 2)
		ctx, cancel := driver.WithDeadlineOnly(f.Context(), hasty+200*time.Millisecond)
		defer cancel()
		go func() { failed <- f.inTime(ctx, tooMuch) }()
		until(f, "it is on its way", func() bool { return !f.link.now.Load().idle() })
		go func() { failed <- echo(f.Context(), f.link, "behind") }()
		for range 2 {
			f.fails(<-failed)
		}
		f.server.Signal(syscall.SIGCONT)
		if err := echo(f.Context(), f.link, "after"); err != nil {
			f.Error(err)
		}
	})
}

// So does the silence of the server, where the calls have no end.
func TestAFullSocketAndNoEnd(t *testing.T) {
	t.Parallel()
	overFull(t, func(f full) {
		failed := make(chan error, 3)
		for range cap(failed) {
			go func() { failed <- echo(context.WithoutCancel(f.Context()), f.link, tooMuch) }()
		}
		for range cap(failed) {
			select {
			case err := <-failed:
				f.fails(err)
			case <-time.After(patience):
				f.Fatal("it is waited for")
			}
		}
		f.server.Signal(syscall.SIGCONT)
		if err := echo(f.Context(), f.link, "after"); err != nil {
			f.Error(err)
		}
	})
}

// Close does not wait for a server that does not read.
func TestCloseOfAFullSocket(t *testing.T) {
	t.Parallel()
	overFull(t, func(f full) {
		ctx, cancel := context.WithTimeout(f.Context(), 200*time.Millisecond)
		defer cancel()
		_ = f.inTime(ctx, tooMuch)
		began := time.Now()
		f.link.Close()
		if took := time.Since(began); took >= stalled {
			f.Errorf("it took %v", took)
		}
	})
}
