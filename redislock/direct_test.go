package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// direct makes a link of a test's own.
func (s *server) direct(tb testing.TB) *directLink {
	tb.Helper()
	return directTo(tb, s.url())
}

func directTo(tb testing.TB, address string) *directLink {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	option, _, err := parse(u)
	if err != nil {
		tb.Fatal(err)
	}
	link := newDirectLink(option)
	tb.Cleanup(link.Close)
	return link
}

// Answers find their callers, whoever leaves meanwhile and however many calls are
// on the connection, which lasts.
func TestAnswersFindTheirCalls(t *testing.T) {
	t.Parallel()
	link := ownServer(t).direct(t)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					go cancel()
				}
				one, two := fmt.Sprintf("%d/%d", g, i), strings.Repeat("x", rand.IntN(3000))
				replies := link.Do(ctx, command("ECHO", one), command("ECHO", two))
				for k, want := range []string{one, two} {
					if r := replies[k]; r.Err == nil && r.Text != want || r.Err != nil && !errors.Is(r.Err, context.Canceled) {
						t.Errorf("%q: %+v", want, r)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if n, _ := link.Dials(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A server that says nothing holds up nobody longer than his ctx, and a call that runs out
// of more than a moment gives the connection up.
func TestASilentServer(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	link := server.direct(t)
	ping := func(ctx context.Context, cancel context.CancelFunc) error {
		defer cancel()
		return link.Do(ctx, command("PING"))[0].Err
	}
	if err := ping(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	for range 3 {
		if err := ping(context.WithTimeout(t.Context(), 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := ping(driver.WithDeadlineOnly(t.Context(), hasty+200*time.Millisecond)); err == nil {
				t.Error("an answer")
			}
		})
	}
	wg.Wait()
	server.Signal(syscall.SIGCONT)
	if err := ping(context.WithTimeout(t.Context(), patience)); err != nil {
		t.Error(err)
	}
	if n, _ := link.Dials(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// So it does where the calls have no end, and nobody else is there who runs out of time.
func TestASilentServerAndNoEnd(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	link := server.direct(t)
	ping := func(do func(context.Context, ...Command) []Reply) error {
		return do(context.WithoutCancel(t.Context()), command("PING"))[0].Err
	}
	if err := errors.Join(ping(link.Do), ping(link.DoApart)); err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	silent := make(chan error, 2)
	go func() { silent <- ping(link.Do) }()
	go func() { silent <- ping(link.DoApart) }()
	for range 2 {
		select {
		case err := <-silent:
			if classify(err) != driver.Indeterminate {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("it is waited for")
		}
	}
	server.Signal(syscall.SIGCONT)
	if err := errors.Join(ping(link.Do), ping(link.DoApart)); err != nil {
		t.Error(err)
	}
}

// Who is behind calls that nobody waits for any more, when the connection is given up for
// them, is told so.
func TestSilenceIsToldToThoseBehind(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	link := server.direct(t)
	if err := link.Do(t.Context(), command("PING"))[0].Err; err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_ = link.Do(ctx, command("PING"))
	patient, cancelPatient := context.WithTimeout(t.Context(), patience)
	defer cancelPatient()
	if err := link.Do(patient, command("PING"))[0].Err; !errors.Is(err, errSilent) || classify(err) != driver.Indeterminate {
		t.Error(err)
	}
}

// Close ends what is under way, also apart, and is not behind it.
func TestCloseEndsCallsApart(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	link := server.direct(t)
	if err := link.DoApart(t.Context(), command("PING"))[0].Err; err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	done := make(chan error, 1)
	go func() { done <- link.DoApart(context.WithoutCancel(t.Context()), command("PING"))[0].Err }()
	until(t, "it is sent", func() bool {
		link.mu.Lock()
		defer link.mu.Unlock()
		return len(link.apart) == 0
	})
	link.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("an answer")
		}
	default:
		t.Error("it goes on")
	}
	if err := link.DoApart(t.Context(), command("PING"))[0].Err; classify(err) != driver.Unavailable {
		t.Error(err)
	}
}

// A connection that the server has closed while nobody used it costs no call, also
// after the limit of the last call.
func TestAConnectionThatWasClosed(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	outlives(t, server.direct(t), server.client(t))
}

func outlives(t *testing.T, link *directLink, c rueidis.Client) {
	t.Helper()
	ping := func(ctx context.Context) {
		for _, do := range []func(context.Context, ...Command) []Reply{link.Do, link.DoApart} {
			if err := do(ctx, command("PING"))[0].Err; err != nil {
				t.Error(err)
			}
		}
	}
	for _, limit := range []time.Duration{0, 2 * hasty, 0} {
		ping(t.Context())
		limited, cancel := driver.WithDeadlineOnly(t.Context(), limit)
		if limit > 0 {
			ping(limited)
		}
		must(t, c, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		<-limited.Done()
		cancel()
		<-time.After(4 * unused)
	}
}

// A server that knows no AUTH repeats its words; we do not.
func TestNoPasswordInErrors(t *testing.T) {
	t.Parallel()
	for want, server := range map[driver.Kind]*server{
		driver.Unsupported: ownServer(t, "--rename-command", "AUTH", "LOGIN"),
		driver.Denied:      ownServer(t), // it asks for none
	} {
		_, err := openURL(t.Context(), strings.Replace(server.url(), "//", "//:secret@", 1))
		if err == nil || classify(err) != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", want, err)
		}
	}
}

// A user whose password is not given is refused, and not taken for the default one.
func TestAUserWithoutHisPassword(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	must(t, server.client(t), strings.Fields("ACL SETUSER shop on >secret ~* &* +@all")...)
	for _, user := range []string{"shop", "nobody", "shop:wrong"} {
		if _, err := openURL(t.Context(), strings.Replace(server.url(), "//", "//"+user+"@", 1)); err == nil || classify(err) != driver.Denied {
			t.Errorf("%s: %v", user, err)
		}
	}
	openAt(t, strings.Replace(server.url(), "//", "//shop:secret@", 1))
}

// A reply is found and read wherever the network cuts it.
func TestReplies(t *testing.T) {
	t.Parallel()
	const text = "*4\r\n$3\r\na\nb\r\n:-7\r\n*-1\r\n*2\r\n$-1\r\n-ERR no\r\n"
	want := Reply{List: []Reply{{Text: "a\nb"}, {Int: -7}, {Null: true}, {List: []Reply{{Null: true}, {Err: ServerError("ERR no")}}}}}
	var s scanner
	for n := range len(text) {
		if whole, err := s.scan([]byte(text[:n])); whole || err != nil {
			t.Fatalf("%q: %t, %v", text[:n], whole, err)
		}
	}
	if whole, err := s.scan([]byte(text + "+OK\r\n")); !whole || err != nil || s.seen != len(text) {
		t.Fatalf("%t, %v, %d of %d bytes", whole, err, s.seen, len(text))
	}
	if got, size := readReply([]byte(text)); size != len(text) || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %d bytes", got, size)
	}
	for _, bad := range []string{"?\r\n", "$x\r\n", "*-2\r\n", "*1\r\n%1\r\n", "$9223372036854775807\r\n"} {
		if whole, err := (&scanner{}).scan([]byte(bad)); whole || err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
