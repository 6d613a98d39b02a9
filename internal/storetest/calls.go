// Package storetest calls a driver as the tests of one store need it: past package
// holdfast, one request at a time, with what the driver signals written down. What
// every store must do is the business of package drivertest.
package storetest

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Patience bounds what a test waits for; a busy machine may need much.
const Patience = 60 * time.Second

// Request is an exclusive acquire by a new owner.
func Request(name driver.Name) *driver.AcquireRequest {
	req := &driver.AcquireRequest{
		Name: name, Label: "host/1/test", Mode: driver.Exclusive, TTL: time.Minute, Claim: 3 * time.Second,
	}
	rand.Read(req.Owner[:])
	return req
}

// Ask makes one attempt.
func Ask(tb testing.TB, s driver.Store, req *driver.AcquireRequest) (driver.Ref, driver.Status) {
	tb.Helper()
	res, err := s.Acquire(tb.Context(), req)
	if err != nil {
		tb.Fatalf("acquire: %v", err)
	}
	return driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: res.Grant.Token}, res.Status
}

// Want is Ask, and the answer.
func Want(tb testing.TB, s driver.Store, req *driver.AcquireRequest, want driver.Status) driver.Ref {
	tb.Helper()
	ref, status := Ask(tb, s, req)
	if status != want {
		tb.Fatalf("status %d, want %d", status, want)
	}
	return ref
}

// Free releases a grant or a place, which must be there.
func Free(tb testing.TB, s driver.Store, ref driver.Ref) {
	tb.Helper()
	if ok, err := s.Release(tb.Context(), &driver.ReleaseRequest{Ref: ref}); !ok || err != nil {
		tb.Fatalf("release: %t, %v", ok, err)
	}
}

// Renew sends one renewal.
func Renew(tb testing.TB, s driver.Store, ref driver.Ref, ttl time.Duration) driver.RenewResult {
	tb.Helper()
	return s.Renew(tb.Context(), []driver.RenewRequest{{Ref: ref, TTL: ttl}})[0]
}

// Until polls for a condition.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("not in time: %s", what)
		}
	}
}

// Retry repeats a call until the store answers it.
func Retry[A any](tb testing.TB, s driver.Store, call func() (A, error)) (answer A) {
	tb.Helper()
	Until(tb, "an answer", func() bool {
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
