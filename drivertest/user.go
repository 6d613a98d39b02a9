package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// This file is what the cases do with a holdfast.Client.

// locks acquires, waiting; failing is fatal.
func (t *T) locks(c *holdfast.Client, name string, o *holdfast.AcquireOptions) *holdfast.Lease {
	ctx, cancel := context.WithTimeout(t.ctx, 3*liveness)
	defer cancel()
	l, err := c.Acquire(ctx, name, o)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return l
}

// gets makes one attempt that must succeed.
func (t *T) gets(c *holdfast.Client, name string, o *holdfast.AcquireOptions) *holdfast.Lease {
	l, err := c.TryAcquire(t.ctx, name, o)
	if err != nil {
		t.Fatalf("attempt on a free name: %v", err)
	}
	return l
}

// busy makes one attempt that must be refused with ErrHeld.
func (t *T) busy(c *holdfast.Client, name string, o *holdfast.AcquireOptions, why string) {
	l, err := c.TryAcquire(t.ctx, name, o)
	if err == nil {
		t.Errorf("%s: a second one got in, token %d", why, l.Token())
		_ = l.Release(t.ctx) // the case has failed already
		return
	}
	if !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("%s: %v, want ErrHeld", why, err)
	}
}

// busyUntil is busy, unless this machine is so late that end has passed.
func (t *T) busyUntil(end time.Time, c *holdfast.Client, name, why string) {
	l, err := c.TryAcquire(t.ctx, name, nil)
	switch late := time.Now().After(end); {
	case err != nil:
		t.is(err, holdfast.ErrHeld, why)
	case late:
		t.frees(l)
	default:
		t.Errorf("%s: a second one got in, token %d", why, l.Token())
		_ = l.Release(t.ctx) // the case has failed already
	}
}

// frees releases; failing is an error.
func (t *T) frees(l *holdfast.Lease) {
	if err := l.Release(t.ctx); err != nil {
		t.Errorf("release: %v", err)
	}
}

// opens waits until the name is free for one attempt, takes it and returns it.
func (t *T) opens(c *holdfast.Client, name string, o *holdfast.AcquireOptions) *holdfast.Lease {
	var l *holdfast.Lease
	t.eventually("the name becomes free", func() bool {
		var err error
		if l, err = c.TryAcquire(t.ctx, name, o); err != nil && !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("attempt: %v", err)
		}
		return err == nil
	})
	return l
}

// is asserts the kind of an error.
func (t *T) is(err, want error, what string) {
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// ends waits for a lease's context to end and asserts its cause.
func (t *T) ends(l *holdfast.Lease, want error) {
	t.await(l.Context().Done(), "the lease's context")
	t.is(context.Cause(l.Context()), want, "cause of the lease's context")
}

// waiting starts an acquire in a goroutine and returns what came of it when
// done is closed.
func (t *T) waiting(ctx context.Context, c *holdfast.Client, name string, o *holdfast.AcquireOptions) *waiting {
	w := &waiting{}
	w.done = t.Go(func() {
		w.lease, w.err = c.Acquire(ctx, name, o)
		w.at = time.Now()
	})
	return w
}

// waiting is an acquire on its way.
type waiting struct {
	done  <-chan struct{}
	lease *holdfast.Lease
	err   error
	at    time.Time
}

// wins waits for the lease of an acquire on its way.
func (t *T) wins(w *waiting) *holdfast.Lease {
	t.await(w.done, "the waiter")
	if w.err != nil {
		t.Fatalf("waiter: %v", w.err)
	}
	return w.lease
}

// room counts what goes on inside of a critical section.
type room struct {
	t      *T
	limit  int64
	inside atomic.Int64
	// visits is changed by a read, a pause and a write, so that two who are
	// inside at once lose one. It is atomic for the race detector's sake, which
	// cannot see that a store orders them.
	visits atomic.Int64
}

// visit is the work of one who holds n of the permits.
func (r *room) visit(n int64) {
	if in := r.inside.Add(n); in > r.limit {
		r.t.Errorf("%d inside, limit %d", in, r.limit)
	}
	seen := r.visits.Load()
	r.t.pause(50 * time.Microsecond)
	if r.limit == 1 {
		r.visits.Store(seen + 1)
	} else {
		r.visits.Add(1)
	}
	r.inside.Add(-n)
}

// crowd runs f in n goroutines, shared out among clients, and waits for all.
func (t *T) crowd(n int, clients []*holdfast.Client, f func(i int, c *holdfast.Client)) {
	var done []<-chan struct{}
	for i := range n {
		done = append(done, t.Go(func() { f(i, clients[i%len(clients)]) }))
	}
	for _, d := range done {
		select {
		case <-d:
		case <-t.ctx.Done():
			t.Fatalf("the crowd is not done: %v", t.ctx.Err())
		}
	}
}

// clients are n clients of the one store.
func (t *T) clients(n int) []*holdfast.Client {
	cs := make([]*holdfast.Client, n)
	for i := range cs {
		cs[i] = t.Client()
	}
	return cs
}
