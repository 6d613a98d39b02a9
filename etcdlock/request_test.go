package etcdlock

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// outage is a server that stands still when it is asked for something, and two
// clients that ask.
type outage struct {
	server   cluster
	p        *proxy // which both go through
	c, other *holdfast.Client
}

// under has the server stand still, asks, and, when the request is on its way,
// kills the server and starts it again, or lets it go on.
func (o *outage) under(t *testing.T, killed bool, ask func()) (answered <-chan struct{}) {
	t.Helper()
	signal(t, o.server.Nodes[0], syscall.SIGSTOP)
	before, done := o.p.asked.Load(), make(chan struct{})
	go func() {
		defer close(done)
		ask()
	}()
	until(t, "a request is on its way", func() bool { return o.p.asked.Load() > before })
	if killed {
		o.server.Kill()
		if err := o.server.Start(); err != nil {
			t.Fatal(err)
		}
	} else {
		signal(t, o.server.Nodes[0], syscall.SIGCONT)
	}
	return done
}

// A server that is killed, or stands still, under an acquire, a wait, a renewal or a
// release costs time and nothing else: who waited gets the name, who held it holds
// it, who gave it up has given it up, and nothing stays behind.
func TestServerFailsUnderARequest(t *testing.T) {
	t.Parallel()
	for verb, play := range map[string]func(*testing.T, *outage, bool){
		"acquire": underAcquire, "wait": underWait, "renew": underRenew, "release": underRelease,
	} {
		for how, killed := range map[string]bool{"killed": true, "stopped": false} {
			t.Run(how+" in "+verb, func(t *testing.T) {
				t.Parallel()
				o := &outage{server: ownServer(t)}
				o.p = newProxy(t, o.server.Nodes[0].Addr)
				o.c, o.other = clientAt(t, o.p.url()), clientAt(t, o.p.url())
				release(t, acquire(t, o.c)) // has the leases made
				play(t, o, killed)
				o.nothingStays(t)
			})
		}
	}
}

func acquire(tb testing.TB, c *holdfast.Client) *holdfast.Lease {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	l, err := c.Acquire(ctx, "name", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func release(tb testing.TB, l *holdfast.Lease) {
	tb.Helper()
	if err := l.Release(tb.Context()); err != nil {
		tb.Error(err)
	}
}

func (o *outage) nothingStays(t *testing.T) {
	t.Helper()
	api := o.server.api(t)
	until(t, "the name is free", func() bool {
		answer, err := api.Get(t.Context(), root, clientv3.WithPrefix())
		return err == nil && answer.Count == 0
	})
}

func underAcquire(t *testing.T, o *outage, killed bool) {
	t.Helper()
	var lease *holdfast.Lease
	<-o.under(t, killed, func() {
		var err error
		if lease, err = o.c.Acquire(t.Context(), "name", nil); err != nil {
			t.Errorf("acquire: %v", err)
		}
	})
	if lease != nil {
		until(t, "it is held", func() bool { return lease.Check(t.Context()) == nil })
		release(t, lease)
	}
}

// underWait lets the holder release while nothing is answered.
func underWait(t *testing.T, o *outage, killed bool) {
	t.Helper()
	held, won := acquire(t, o.other), make(chan *holdfast.Lease, 1)
	go func() {
		l, err := o.c.Acquire(t.Context(), "name", nil)
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		won <- l
	}()
	s := o.server.open(t)
	until(t, "it waits", func() bool {
		r, err := s.Inspect(t.Context(), nameOfText("name"))
		return err == nil && len(r.Waiters) == 1
	})
	<-o.under(t, killed, func() {
		_ = held.Release(t.Context()) // if it is not answered it goes on in the background
	})
	if next := <-won; next != nil {
		if next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		}
		until(t, "it is held", func() bool { return next.Check(t.Context()) == nil })
		release(t, next)
	}
}

func underRenew(t *testing.T, o *outage, killed bool) {
	t.Helper()
	lease := acquire(t, o.c)
	<-o.under(t, killed, func() { _ = lease.Renew(t.Context(), time.Minute) })
	until(t, "it is renewed", func() bool { return lease.Renew(t.Context(), time.Minute) == nil })
	if _, err := o.other.TryAcquire(t.Context(), "name", nil); err == nil || !lease.Valid() {
		t.Errorf("another one gets in: %v; valid: %t", err, lease.Valid())
	}
	release(t, lease)
}

func underRelease(t *testing.T, o *outage, killed bool) {
	t.Helper()
	lease := acquire(t, o.c)
	<-o.under(t, killed, func() {
		if err := lease.Release(t.Context()); err != nil && !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrIndeterminate) {
			t.Errorf("release: %v", err)
		}
	})
	if lease.Valid() {
		t.Error("valid after its release")
	}
	next := acquire(t, o.other)
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	release(t, next)
}
