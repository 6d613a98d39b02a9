package redislock

import (
	"testing"

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

func nameOf(text string) driver.Name { return driver.Name{Key: ":" + text, Full: text} }

func request(name string) *driver.AcquireRequest { return storetest.Request(nameOf(name)) }

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

func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	storetest.Until(tb, what, ok)
}

func retry[A any](tb testing.TB, s *store, call func() (A, error)) A {
	tb.Helper()
	return storetest.Retry(tb, s, call)
}
