package etcdlock

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// proxy passes everything on to a server. It can be made deaf, so that nothing
// the server says comes back, dumb, so that nothing passes either way, and cut.
type proxy struct {
	listener net.Listener
	to       string

	asked atomic.Int64 // bytes that were passed on to the server

	mu         sync.Mutex
	deaf, dumb bool
	changed    chan struct{}
	conns      map[net.Conn]bool
}

func newProxy(tb testing.TB, to string) *proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{listener: l, to: to, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	tb.Cleanup(func() {
		_ = l.Close()
		p.set(false, false)
		p.cut()
	})
	go p.serve()
	return p
}

func (p *proxy) url() string { return "etcd://" + p.listener.Addr().String() }

func (p *proxy) set(deaf, dumb bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf, p.dumb = deaf, dumb
	close(p.changed)
	p.changed = make(chan struct{})
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
	clear(p.conns)
}

func (p *proxy) serve() {
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.to)
		if err != nil {
			_ = down.Close()
			continue
		}
		p.mu.Lock()
		p.conns[down], p.conns[up] = true, true
		p.mu.Unlock()
		go p.pass(down, up, true)
		go p.pass(up, down, false)
	}
}

// pass copies one direction, and waits while it is blocked.
func (p *proxy) pass(to io.WriteCloser, from io.ReadCloser, answers bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		for {
			p.mu.Lock()
			blocked, changed := p.dumb || answers && p.deaf, p.changed
			p.mu.Unlock()
			if !blocked {
				break
			}
			<-changed
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
		if !answers {
			p.asked.Add(int64(n))
		}
	}
}

// An answer that is lost is neither a success nor a refusal, and nothing is sent
// again by itself.
func TestLostAnswersAreIndeterminate(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server.Nodes[0].Addr)
	s, other := openAt(t, p.url()), server.open(t)
	req := request(t.Name())
	hold(t, s, t.Name()+"/leases")
	// lose lets the server handle a call, which done tells, and loses the answer.
	lose := func(call func() error, done func() bool) {
		t.Helper()
		p.set(true, false)
		answer := make(chan error, 1)
		go func() { answer <- call() }()
		until(t, "the request is handled", done)
		p.cut()
		p.set(false, false)
		if err := <-answer; err == nil || s.Classify(err) != driver.Indeterminate {
			t.Errorf("%v: %v", s.Classify(err), err)
		}
	}
	holders := func() int {
		r, err := other.Inspect(t.Context(), req.Name)
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Holders)
	}
	lose(func() error { _, err := s.Acquire(t.Context(), req); return err }, func() bool { return holders() == 1 })
	again := retry(t, s, func() (driver.AcquireResult, error) { return s.Acquire(t.Context(), req) })
	if again.Status != driver.Granted {
		t.Fatalf("the same owner again: status %d", again.Status)
	}
	end := &driver.ReleaseRequest{Ref: driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: again.Grant.Token}}
	lose(func() error { _, err := s.Release(t.Context(), end); return err }, func() bool { return holders() == 0 })
	next := hold(t, other, t.Name())
	if retry(t, s, func() (bool, error) { return s.Release(t.Context(), end) }) {
		t.Error("the repeated release ended something")
	}
	free(t, other, next)
}

// Report B052: a holder that is cut off from the cluster knows that the lock is
// lost before the next one has it, may not release that one's, and the same
// client works again when the network does.
func TestPartitionOfTheHolder(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server.Nodes[0].Addr)
	a, b := clientAt(t, p.url()), clientAt(t, server.URL())
	lease, err := a.Acquire(t.Context(), t.Name(), &holdfast.AcquireOptions{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p.set(false, true)
	next, err := b.Acquire(t.Context(), t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if lease.Valid() || lease.Context().Err() == nil {
		t.Error("still trusted when the next one has it")
	}
	if err := lease.Release(t.Context()); err == nil {
		t.Error("the late release succeeded")
	}
	p.set(false, false)
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := a.Acquire(t.Context(), t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Release(t.Context())
}

// Without an answer a call returns when its ctx ends.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	p := newProxy(t, sharedServer(t).Nodes[0].Addr)
	s := openAt(t, p.url())
	ref := hold(t, s, t.Name())
	p.set(false, true)
	for what, call := range map[string]func(ctx context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, request(t.Name()+"/other")); return err },
		"renew": func(ctx context.Context) error {
			return s.Renew(ctx, []driver.RenewRequest{{Ref: ref, TTL: time.Minute}})[0].Err
		},
		"release": func(ctx context.Context) error {
			_, err := s.Release(ctx, &driver.ReleaseRequest{Ref: driver.Ref{Name: ref.Name, Owner: request("").Owner, Mode: ref.Mode}})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(begin); took > 10*time.Second || err == nil || s.Classify(err) != driver.Indeterminate {
			t.Errorf("%s after %v: %v", what, took, err)
		}
		if err := call(ctx); err == nil || s.Classify(err) != driver.Unavailable {
			t.Errorf("%s with a ctx that has ended: %v", what, err)
		}
	}
	p.set(false, false)
	free(t, s, ref)
}
