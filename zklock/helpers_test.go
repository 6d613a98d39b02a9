package zklock

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

// testTTL makes sessions of 8 s: long enough for a busy machine, short enough to
// wait for the end of one.
const testTTL = 6 * time.Second

func openURL(ctx context.Context, text string) (driver.Store, error) {
	return openFor(ctx, text, testTTL)
}

func openFor(ctx context.Context, text string, ttl time.Duration) (driver.Store, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u, &driver.OpenOptions{TTL: ttl})
}

// client is a store of a test's own, and what it has said.
type client struct {
	*store
	storetest.Heard
}

func openAt(tb testing.TB, at string, ttl time.Duration) *client {
	tb.Helper()
	opened, err := openFor(tb.Context(), at, ttl)
	if err != nil {
		tb.Fatal(err)
	}
	c := &client{store: opened.(*store)} //nolint:errcheck,forcetypeassert // open makes no other
	c.Listen(c.Note)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *server) open(tb testing.TB) *client {
	tb.Helper()
	return openAt(tb, s.url(), testTTL)
}

// heard returns what was said of an owner, of that kind.
func (c *client) heard(kind driver.SignalKind, owner driver.Owner) []driver.Signal {
	return c.Of(kind, owner)
}

// told waits for the grant of a place.
func (c *client) told(tb testing.TB, place driver.Ref) driver.Ref {
	tb.Helper()
	until(tb, "the grant is told", func() bool { return len(c.heard(driver.GrantSignal, place.Owner)) > 0 })
	place.Token = c.heard(driver.GrantSignal, place.Owner)[0].Grant.Token
	return place
}

func nameOf(text string) driver.Name { return driver.Name{Key: "+" + text, Full: text} }

func request(name string) *driver.AcquireRequest {
	req := storetest.Request(nameOf(name))
	req.TTL = testTTL
	return req
}

// try makes one attempt.
func (c *client) try(tb testing.TB, name string) (driver.Ref, driver.Status) {
	tb.Helper()
	return storetest.Ask(tb, c, request(name))
}

func (c *client) hold(tb testing.TB, name string) driver.Ref {
	tb.Helper()
	return storetest.Want(tb, c, request(name), driver.Granted)
}

func (c *client) enqueue(tb testing.TB, name string) driver.Ref {
	tb.Helper()
	req := request(name)
	req.Queue = true
	return storetest.Want(tb, c, req, driver.Waiting)
}

func (c *client) free(tb testing.TB, ref driver.Ref) {
	tb.Helper()
	storetest.Free(tb, c, ref)
}

func (c *client) renew(tb testing.TB, ref driver.Ref) driver.RenewResult {
	tb.Helper()
	return storetest.Renew(tb, c, ref, testTTL)
}

func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	storetest.Until(tb, what, ok)
}

func opener(at string) func(context.Context) (driver.Store, error) {
	return func(ctx context.Context) (driver.Store, error) { return openURL(ctx, at) }
}

// full tells whether the long cases run too.
func full() bool { return os.Getenv("HOLDFAST_FULL") != "" }

// silent is for clients whose losses are the test's business.
var silent = slog.New(slog.DiscardHandler)

func childrenIn(tb testing.TB, c *client, key string) view {
	tb.Helper()
	var replies []zk.Reply
	until(tb, "a list", func() bool {
		l, err := c.session(tb.Context())
		if err == nil {
			replies, err = l.zk.Do(tb.Context(), zk.GetChildren(c.dir(key), false))
		}
		return err == nil
	})
	if replies[0].NoNode() {
		return view{}
	}
	v, err := listed(&replies[0])
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// escaped is a name in a portable key.
func escaped(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("._-", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}
