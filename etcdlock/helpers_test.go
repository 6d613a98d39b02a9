package etcdlock

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
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
type heard struct{ storetest.Heard }

func (h *heard) listen(s *store) { s.Listen(h.Note) }

// grant finds the first grant that was told to an owner.
func (h *heard) grant(owner driver.Owner) (driver.Signal, bool) {
	if all := h.Of(driver.GrantSignal, owner); len(all) > 0 {
		return all[0], true
	}
	return driver.Signal{}, false
}

func (h *heard) has(kind driver.SignalKind, owner driver.Owner) bool { return h.Has(kind, owner) }

// missed is how often signals were said to be missed.
func (h *heard) missed() int { return len(h.Of(driver.MissedSignal, driver.Owner{})) }

func nameOfText(text string) driver.Name {
	return driver.Name{Key: "+" + escape(text), Full: text}
}

func request(name string) *driver.AcquireRequest { return storetest.Request(nameOfText(name)) }

// try makes one attempt.
func try(tb testing.TB, s *store, name string) (driver.Ref, driver.Status) {
	tb.Helper()
	return storetest.Ask(tb, s, request(name))
}

func ask(tb testing.TB, s *store, req *driver.AcquireRequest) (driver.Ref, driver.Status) {
	tb.Helper()
	return storetest.Ask(tb, s, req)
}

func hold(tb testing.TB, s *store, name string) driver.Ref {
	tb.Helper()
	return storetest.Want(tb, s, request(name), driver.Granted)
}

func enqueue(tb testing.TB, s *store, name string) driver.Ref {
	tb.Helper()
	req := request(name)
	req.Queue = true
	return storetest.Want(tb, s, req, driver.Waiting)
}

func free(tb testing.TB, s *store, ref driver.Ref) {
	tb.Helper()
	storetest.Free(tb, s, ref)
}

func renew(tb testing.TB, s *store, ref driver.Ref, ttl time.Duration) driver.RenewResult {
	tb.Helper()
	return storetest.Renew(tb, s, ref, ttl)
}

func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	storetest.Until(tb, what, ok)
}

func retry[A any](tb testing.TB, s *store, call func() (A, error)) A {
	tb.Helper()
	return storetest.Retry(tb, s, call)
}

// fromKey reads all keys from one on.
var fromKey = []clientv3.OpOption{clientv3.WithFromKey()}
