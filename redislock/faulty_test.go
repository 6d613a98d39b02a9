package redislock

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// proxy passes commands on to a server, and can swallow what the server answers
// to those that carry a given text, and cut the connection.
type proxy struct {
	tb       testing.TB
	listener net.Listener
	to       string

	mu      sync.Mutex
	swallow []byte // the text; the next request with it is not answered
	cut     chan struct{}
}

func newProxy(tb testing.TB, to string) *proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{tb: tb, listener: l, to: to}
	tb.Cleanup(func() { _ = l.Close() })
	go p.serve()
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

// loseAnswerTo makes the connection break once the server has handled the next
// request with that text. The channel is closed then.
func (p *proxy) loseAnswerTo(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow, p.cut = []byte(text), make(chan struct{})
	return p.cut
}

func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.to)
		if err != nil {
			_ = conn.Close()
			continue
		}
		go p.pass(conn, up)
	}
}

func (p *proxy) pass(down, up net.Conn) {
	var mu sync.Mutex
	deaf := false
	go func() { // answers
		defer down.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := up.Read(buffer)
			mu.Lock()
			lost := deaf
			mu.Unlock()
			if err != nil || lost { // handled, and the answer is lost
				_ = up.Close()
				if lost {
					close(p.cut)
				}
				return
			}
			if _, err := down.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := down.Read(buffer)
		if err != nil {
			if err != io.EOF { //nolint:errorlint // Read gives it bare
				_ = up.Close()
			}
			return
		}
		p.mu.Lock()
		hit := len(p.swallow) > 0 && bytes.Contains(buffer[:n], p.swallow)
		if hit {
			p.swallow = nil
		}
		p.mu.Unlock()
		if hit {
			mu.Lock()
			deaf = true
			mu.Unlock()
		}
		if _, err := up.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// An answer that is lost is neither a success nor a refusal, and nothing is sent
// again by itself: the server handled each request once.
func TestLostAnswersAreIndeterminate(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server.addr())
	s, other := openAt(t, p.url()), server.open(t)
	ctx := t.Context()

	req := request(t.Name())
	lost := p.loseAnswerTo(acquireScript.sha)
	_, err := s.Acquire(ctx, req)
	<-lost
	if kind := s.Classify(err); kind != driver.Indeterminate {
		t.Errorf("a lost grant is %v: %v", kind, err)
	}
	if _, status := try(t, other, t.Name()); status != driver.Held {
		t.Errorf("the lost grant is not there: status %d", status)
	}
	again := retry(t, s, func() (driver.AcquireResult, error) { return s.Acquire(ctx, req) })
	if again.Status != driver.Granted {
		t.Fatalf("the same owner again: status %d", again.Status)
	}
	ref := driver.Ref{Name: req.Name, Owner: req.Owner, Token: again.Grant.Token}

	lost = p.loseAnswerTo(renewScript.sha)
	res := s.Renew(ctx, []driver.RenewRequest{{Ref: ref, TTL: req.TTL}})[0]
	<-lost
	if kind := s.Classify(res.Err); res.Err == nil || kind != driver.Indeterminate {
		t.Errorf("a lost renewal is %v: %+v", kind, res)
	}
	lost = p.loseAnswerTo(releaseScript.sha)
	end := &driver.ReleaseRequest{Ref: ref}
	ok := retry(t, s, func() (bool, error) {
		released, err := s.Release(ctx, end)
		select {
		case <-lost:
		default:
			if err == nil {
				t.Errorf("a release without its answer says %t", released)
			}
		}
		return released, err
	})
	if ok {
		t.Error("the repeated release ended something")
	}
	if h, status := try(t, other, t.Name()); status != driver.Granted {
		t.Errorf("after the lost release: status %d", status)
	} else {
		free(t, other, h)
	}
}
