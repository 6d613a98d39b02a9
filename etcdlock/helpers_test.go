package etcdlock

import (
	"crypto/rand"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

func openAt(tb testing.TB, url string) *store {
	tb.Helper()
	opened, err := openURL(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = opened.Close() })
	s := opened.(*store) //nolint:errcheck // open makes no other
	s.Listen(func(driver.Signal) {})
	return s
}

// heard collects signals.
type heard struct {
	mu      sync.Mutex
	signals []driver.Signal
}

func (h *heard) listen(s *store) {
	s.Listen(func(sig driver.Signal) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.signals = append(h.signals, sig)
	})
}

// of finds the first signal of a kind.
func (h *heard) of(kind driver.SignalKind, owner driver.Owner) (driver.Signal, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sig := range h.signals {
		if sig.Kind == kind && sig.Owner == owner {
			return sig, true
		}
	}
	return driver.Signal{}, false
}

func (h *heard) has(kind driver.SignalKind, owner driver.Owner) bool {
	_, ok := h.of(kind, owner)
	return ok
}

func nameOfText(text string) driver.Name {
	return driver.Name{Key: "+" + escape(text), Full: text}
}

func request(name string) *driver.AcquireRequest {
	req := &driver.AcquireRequest{
		Name: nameOfText(name), Label: "host/1/test", Mode: driver.Exclusive, TTL: time.Minute, Claim: 3 * time.Second,
	}
	rand.Read(req.Owner[:])
	return req
}

// try makes one attempt.
func try(tb testing.TB, s *store, name string) (driver.Ref, driver.Status) {
	tb.Helper()
	return ask(tb, s, request(name))
}

func ask(tb testing.TB, s *store, req *driver.AcquireRequest) (driver.Ref, driver.Status) {
	tb.Helper()
	res, err := s.Acquire(tb.Context(), req)
	if err != nil {
		tb.Fatalf("acquire: %v", err)
	}
	return driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: res.Grant.Token}, res.Status
}

func hold(tb testing.TB, s *store, name string) driver.Ref {
	tb.Helper()
	ref, status := try(tb, s, name)
	if status != driver.Granted {
		tb.Fatalf("status %d, want granted", status)
	}
	return ref
}

func enqueue(tb testing.TB, s *store, name string) driver.Ref {
	tb.Helper()
	req := request(name)
	req.Queue = true
	ref, status := ask(tb, s, req)
	if status != driver.Waiting {
		tb.Fatalf("status %d, want waiting", status)
	}
	return ref
}

func free(tb testing.TB, s *store, ref driver.Ref) {
	tb.Helper()
	if ok, err := s.Release(tb.Context(), &driver.ReleaseRequest{Ref: ref}); !ok || err != nil {
		tb.Fatalf("release: %t, %v", ok, err)
	}
}

func renew(tb testing.TB, s *store, ref driver.Ref, ttl time.Duration) driver.RenewResult {
	tb.Helper()
	return s.Renew(tb.Context(), []driver.RenewRequest{{Ref: ref, TTL: ttl}})[0]
}

// until polls for a condition.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("not in time: %s", what)
		}
	}
}

// retry repeats a call until it is answered.
func retry[A any](tb testing.TB, s *store, call func() (A, error)) (answer A) {
	tb.Helper()
	until(tb, "an answer", func() bool {
		var err error
		if answer, err = call(); err != nil {
			if kind := s.Classify(err); kind != driver.Indeterminate && kind != driver.Unavailable {
				tb.Fatalf("%v: %v", kind, err)
			}
		}
		return err == nil
	})
	return answer
}

// fromKey reads all keys from one on.
var fromKey = []clientv3.OpOption{clientv3.WithFromKey()}
