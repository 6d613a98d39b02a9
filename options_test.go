package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Each kind of request is given RequestTimeout, and no more than a third of the
// TTL that it is about.
func TestRequestTimeout(t *testing.T) {
	for _, test := range []struct{ timeout, ttl, bound time.Duration }{
		{700 * time.Millisecond, 30 * time.Second, 700 * time.Millisecond},
		{700 * time.Millisecond, 900 * time.Millisecond, 300 * time.Millisecond},
		{0, 30 * time.Second, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy(t, memlock.NewServer())
			s.remote = true
			var renewBound time.Duration
			s.onRenew = func(ctx context.Context, _ []driver.RenewRequest) error {
				end, _ := ctx.Deadline()
				renewBound = time.Until(end)
				return nil
			}
			s.onAcquire = func(ctx context.Context, reqs []*driver.AcquireRequest) error {
				if reqs[0].Name.Full == "hangs" {
					<-ctx.Done()
					return torn()
				}
				return nil
			}
			c := open(t, s, &holdfast.Options{RequestTimeout: test.timeout})
			start := time.Now()
			_, err := c.TryAcquire(t.Context(), "hangs", &holdfast.AcquireOptions{TTL: test.ttl})
			want(t, err, holdfast.ErrIndeterminate)
			if took := time.Since(start); took != test.bound {
				t.Errorf("the attempt took %v, want %v", took, test.bound)
			}
			l := take(t, c, "x", &holdfast.AcquireOptions{TTL: test.ttl})
			if err := l.Renew(t.Context(), test.ttl); err != nil || renewBound != test.bound {
				t.Errorf("the renewal was given %v, want %v (%v)", renewBound, test.bound, err)
			}
			give(t, l)
		})
	}
}

// A release that is not answered is bounded too, and goes on in the background.
func TestRequestTimeoutOfRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		s.remote = true
		c := open(t, &mute{spy: s, left: 2}, &holdfast.Options{RequestTimeout: 700 * time.Millisecond})
		l := take(t, c, "x", nil)
		start := time.Now()
		want(t, l.Release(t.Context()), holdfast.ErrIndeterminate)
		if took := time.Since(start); took != 700*time.Millisecond {
			t.Errorf("the release took %v", took)
		}
		want(t, l.Release(t.Context()), holdfast.ErrIndeterminate) // as the first
		time.Sleep(2 * time.Second)
		free(t, server)
	})
}

// mute lets releases hang, as many as are left.
type mute struct {
	*spy
	mu   sync.Mutex
	left int
}

func (m *mute) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	m.mu.Lock()
	m.left--
	hangs := m.left >= 0
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		answers := make([]driver.ReleaseAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = torn()
		}
		return answers
	}
	return m.spy.ReleaseMany(ctx, reqs)
}

func TestNoLocalHandOver(t *testing.T) {
	for _, off := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSpy(t, server)
			c := open(t, s, &holdfast.Options{NoLocalHandOver: off})
			other := newSpy(t, server).client(t)
			held := take(t, other, "x", nil)
			got := acquireAll(t, c, 10, 10*time.Microsecond)
			before := s.releases.Load()
			give(t, held)
			seen := map[uint64]bool{}
			for range 10 {
				seen[(<-got).Token()>>8] = true
			}
			time.Sleep(time.Second)
			want := 1
			if off {
				want = 10
			}
			if n := int(s.releases.Load() - before); n != want || len(seen) != want {
				t.Errorf("off=%v: %d releases, %d store tokens; want %d", off, n, len(seen), want)
			}
		})
	}
}

// The log gets one line for a long wait, and one for a lost lease.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		server := memlock.NewServer()
		c := open(t, newSpy(t, server), &holdfast.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		other := open(t, newSpy(t, server), &holdfast.Options{Label: "other"})
		held := take(t, other, "x", nil)
		out := later(t.Context(), c, "x", &holdfast.AcquireOptions{NoRenew: true, TTL: 5 * time.Second})
		time.Sleep(30 * time.Second)
		give(t, held)
		l := (<-out).lease
		time.Sleep(10 * time.Second)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "long wait") || !strings.Contains(lines[0], "held by other") ||
			!strings.Contains(lines[0], "name=x") || !strings.Contains(lines[1], "lease ended") || !strings.Contains(lines[1], strconv.FormatUint(l.Token(), 10)) {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// LeaveOnClose ends the leases here; the store keeps the name until they run out.
func TestLeaveOnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		c := open(t, s, &holdfast.Options{LeaveOnClose: true})
		l := take(t, c, "x", &holdfast.AcquireOptions{TTL: 10 * time.Second})
		if err := c.Close(); err != nil || l.Valid() || s.releases.Load() != 0 {
			t.Errorf("closed with %v, valid %v, %d releases", err, l.Valid(), s.releases.Load())
		}
		want(t, context.Cause(l.Context()), holdfast.ErrReleased, holdfast.ErrClosed)
		other := newSpy(t, server).client(t)
		time.Sleep(9 * time.Second)
		_, err := other.TryAcquire(t.Context(), "x", nil)
		want(t, err, holdfast.ErrHeld)
		time.Sleep(time.Second)
		give(t, take(t, other, "x", nil))
	})
}

func TestLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newSpy(t, memlock.NewServer()), &holdfast.Options{Label: "mine"})
		take(t, c, "x", nil)
		take(t, c, "y", &holdfast.AcquireOptions{Label: "its own"})
		for name, label := range map[string]string{"x": "mine", "y": "its own"} {
			r, err := c.Inspect(t.Context(), name)
			if err != nil || len(r.Holders) != 1 || r.Holders[0].Label != label {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
	})
}

// The TTL of a store that takes less than 30 s is what it takes; of one that
// keeps grants longer, at least that.
func TestTTLWithinTheStoresBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPlain(t, memlock.NewServer())
		var asked time.Duration
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			asked = req.TTL
			return s.inner.Acquire(ctx, req)
		}
		s.change = func(p *driver.Properties) { p.MaxTTL = 12 * time.Second }
		c := open(t, s, nil)
		give(t, take(t, c, "x", nil))
		if asked != 12*time.Second {
			t.Errorf("asked for %v", asked)
		}
		_, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{TTL: 13 * time.Second})
		want(t, err, holdfast.ErrInvalid)
		_, err = holdfast.New(s, &holdfast.Options{TTL: 13 * time.Second})
		want(t, err, holdfast.ErrInvalid)
		_, err = holdfast.New(s, &holdfast.Options{TTL: 9 * time.Second, RequestTimeout: 3001 * time.Millisecond})
		want(t, err, holdfast.ErrInvalid)
		l := take(t, c, "x", nil)
		want(t, l.Renew(t.Context(), 13*time.Second), holdfast.ErrInvalid)

		s.change = func(p *driver.Properties) { p.MinTTL = 5 * time.Second }
		low := open(t, s, &holdfast.Options{TTL: time.Second})
		for _, o := range []*holdfast.AcquireOptions{nil, {TTL: 200 * time.Millisecond}, {MaxHold: time.Second}} {
			asked = 0
			give(t, take(t, low, "y", o))
			if asked != 5*time.Second {
				t.Errorf("asked for %v with %+v", asked, o)
			}
		}
	})
}

func TestRequire(t *testing.T) {
	s := newPlain(t, memlock.NewServer())
	s.change = func(p *driver.Properties) { p.Class, p.Fencing, p.Fair = driver.ClassC, false, false }
	for _, r := range []holdfast.Require{{Class: holdfast.ClassB}, {Fencing: true}, {Fair: true}} {
		_, err := holdfast.New(s, &holdfast.Options{Require: r})
		want(t, err, holdfast.ErrUnsupported)
	}
	open(t, s, &holdfast.Options{Require: holdfast.Require{Class: holdfast.ClassC}})
	_, err := holdfast.New(s, &holdfast.Options{Require: holdfast.Require{Class: holdfast.ClassA, Fencing: true, Fair: true}})
	if text := fmt.Sprint(err); strings.Contains(text, "\n") || !strings.Contains(text, "class A") || !strings.Contains(text, "fencing") || !strings.Contains(text, "fair") {
		t.Errorf("%q: must name all three, on one line", text)
	}
}

func TestOpenURL(t *testing.T) {
	for raw, kind := range map[string]error{
		"memory://open?prefix=shop":                  nil,
		"memory://open?prefix=mine":                  nil,
		"memory://open?prefix=shop&prefix=shop":      holdfast.ErrInvalid,
		"memory://open?prefix=sh%20op":               holdfast.ErrInvalid,
		"memory://open?%zz=1":                        holdfast.ErrInvalid,
		"memory://open?ttl=3s":                       holdfast.ErrInvalid,
		"nosuch://user:secret@host?prefix=shop":      holdfast.ErrInvalid,
		"memory://user:secret@host:port?prefix=\x7f": holdfast.ErrInvalid,
	} {
		c, err := holdfast.Open(t.Context(), raw, nil)
		if !errors.Is(err, kind) || (kind == nil) != (c != nil) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%q: %v, want %v", raw, err, kind)
		}
		if c != nil {
			c.Close()
		}
	}
	_, err := holdfast.Open(t.Context(), "memory://open?prefix=shop", &holdfast.Options{Prefix: "other"})
	want(t, err, holdfast.ErrInvalid)
	c, err := holdfast.Open(t.Context(), "memory://open?prefix=shop", &holdfast.Options{Prefix: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = holdfast.Open(t.Context(), "memory://open", &holdfast.Options{Require: holdfast.Require{Class: holdfast.ClassA}})
	want(t, err, holdfast.ErrUnsupported)
}

// spied is what the opener of spied: URLs was told, and what it opens.
var spied struct {
	server *memlock.Server
	query  string
	ttl    time.Duration
}

var registerSpied = sync.OnceFunc(func() {
	driver.Register("spied", func(_ context.Context, u *url.URL, o *driver.OpenOptions) (driver.Store, error) {
		spied.query, spied.ttl = u.RawQuery, o.TTL
		return spied.server.Store(), nil
	})
})

// Clients of different prefixes do not meet, whether it came by URL or option;
// the driver does not see it, and is told the TTL.
func TestPrefixAndTTLOfOpen(t *testing.T) {
	registerSpied()
	spied.server = memlock.NewServer()
	var clients []*holdfast.Client
	for raw, prefix := range map[string]string{"spied://?prefix=a&k=v": "", "spied://?k=v": "b"} {
		c, err := holdfast.Open(t.Context(), raw, &holdfast.Options{TTL: 7 * time.Second, Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if spied.query != "k=v" || spied.ttl != 7*time.Second {
			t.Errorf("the driver got %q and %v", spied.query, spied.ttl)
		}
		clients = append(clients, c)
		take(t, c, "x", nil)
	}
	_, err := clients[0].TryAcquire(t.Context(), "x", nil)
	want(t, err, holdfast.ErrHeld)
}
