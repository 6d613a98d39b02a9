package zklock

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"sync"
	"testing"
)

// proxy passes frames on to a server. It counts requests, and can lose an answer,
// cut connections, and stand still as a network does that drops packets.
type proxy struct {
	listener net.Listener

	mu     sync.Mutex
	moves  *sync.Cond
	to     string
	frozen bool
	cuts   map[int]net.Conn
	next   int
	counts map[string]int
	lose   []byte // the next request with this text is not answered
	lost   chan struct{}
}

var opNames = map[int32]string{
	2: "delete", 3: "exists", 4: "getData", 5: "setData", 8: "getChildren", 9: "sync", 14: "multi", 15: "create",
	19: "createContainer", 100: "auth", -11: "close",
}

func newProxy(tb testing.TB, s *server) *proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{listener: l, to: s.Addr(), cuts: map[int]net.Conn{}, counts: map[string]int{}}
	p.moves = sync.NewCond(&p.mu)
	tb.Cleanup(func() {
		_ = l.Close()
		p.heal()
		p.cut()
	})
	go p.serve()
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }
func (p *proxy) url() string  { return "zookeeper://" + p.addr() + "/holdfast" }

func (p *proxy) serve() {
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
		if err != nil {
			_ = down.Close()
			continue
		}
		go p.pass(down, up)
	}
}

// link is one connection through the proxy.
type lane struct {
	p        *proxy
	down, up net.Conn
	doomed   int32 // the number of the request that is not answered
}

func (p *proxy) pass(down, up net.Conn) {
	l := &lane{p: p, down: down, up: up}
	p.mu.Lock()
	id := p.next
	p.next++
	p.cuts[id] = down
	p.mu.Unlock()
	defer func() {
		_, _ = down.Close(), up.Close()
		p.mu.Lock()
		delete(p.cuts, id)
		p.mu.Unlock()
	}()
	go func() {
		defer down.Close()
		defer up.Close()
		frames(up, down, l.answer)
	}()
	frames(down, up, l.request)
}

// frames passes frames on as long as ok.
func frames(from io.Reader, to io.Writer, ok func(frame []byte, first bool) bool) {
	in := bufio.NewReader(from)
	for first := true; ; first = false {
		head := make([]byte, 4)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(head))
		copy(frame, head)
		if _, err := io.ReadFull(in, frame[4:]); err != nil || !ok(frame[4:], first) {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

func (l *lane) request(frame []byte, first bool) bool {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen {
		p.moves.Wait()
	}
	if first || len(frame) < 8 {
		return true
	}
	xid, op := int32(binary.BigEndian.Uint32(frame)), int32(binary.BigEndian.Uint32(frame[4:])) //nolint:gosec // the same bits
	p.counts[opNames[op]]++
	if len(p.lose) > 0 && bytes.Contains(frame, p.lose) {
		p.lose, l.doomed = nil, xid
	}
	return true
}

func (l *lane) answer(frame []byte, first bool) bool {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen {
		p.moves.Wait()
	}
	if first || l.doomed == 0 || int32(binary.BigEndian.Uint32(frame)) != l.doomed { //nolint:gosec // the same bits
		return true
	}
	close(p.lost)
	return false
}

// loseAnswerTo cuts the connection when the server has answered the next request
// with that text. The channel is closed then.
func (p *proxy) loseAnswerTo(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.lost = []byte(text), make(chan struct{})
	return p.lost
}

// freeze drops everything from now on, without a word.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
	p.moves.Broadcast()
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.cuts {
		_ = conn.Close()
	}
}

// requests tells how many requests of each kind passed while f ran, without the
// session's own.
func (p *proxy) requests(f func()) map[string]int {
	p.mu.Lock()
	clear(p.counts)
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	got := maps.Clone(p.counts)
	delete(got, "sync")
	return got
}
