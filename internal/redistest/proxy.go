package redistest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy passes commands on to a server, and does harm to some.
type Proxy struct {
	listener net.Listener
	to       string
	tls      *TLS
	late     atomic.Int64

	mu   sync.Mutex
	next *harm // to the next request that has its text
	open map[net.Conn]bool
}

type harm struct {
	text   []byte
	double bool
	done   chan struct{}
}

// StartProxy starts one before a server.
func StartProxy(to *Server) (*Proxy, error) { return StartTLSProxy(to, nil) }

// StartTLSProxy is StartProxy with TLS to the clients, which the server need not speak
// itself. nil: without.
func StartTLSProxy(to *Server, t *TLS) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if t != nil {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	}
	p := &Proxy{listener: l, to: to.Addr(), tls: t, open: map[net.Conn]bool{}}
	go p.serve()
	return p, nil
}

// URL opens the server through the proxy.
func (p *Proxy) URL() string { return scheme(p.tls) + "://" + p.listener.Addr().String() }

// Late makes every answer so late from now on.
func (p *Proxy) Late(by time.Duration) { p.late.Store(int64(by)) }

// LoseAnswerTo makes the connection break once the server has handled the next
// request with that text. The channel is closed then.
func (p *Proxy) LoseAnswerTo(text string) <-chan struct{} { return p.plan(text, false) }

// Double makes the server handle the next request with that text twice, the
// second time over another connection, before the first is answered.
func (p *Proxy) Double(text string) <-chan struct{} { return p.plan(text, true) }

func (p *Proxy) plan(text string, double bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = &harm{text: []byte(text), double: double, done: make(chan struct{})}
	return p.next.done
}

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
}

// Close ends the proxy.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Cut()
}

func (p *Proxy) serve() {
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
		p.mu.Lock()
		p.open[conn] = true
		p.mu.Unlock()
		go p.pass(conn, up)
	}
}

func (p *Proxy) pass(down, up net.Conn) {
	var lost atomic.Pointer[harm]
	go p.answers(down, up, &lost)
	defer func() { _ = up.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := down.Read(buffer)
		if err != nil {
			return
		}
		if h := p.hit(buffer[:n]); h != nil && h.double {
			p.twice(buffer[:n])
			close(h.done)
		} else if h != nil {
			lost.Store(h)
		}
		if _, err := up.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) answers(down, up net.Conn, lost *atomic.Pointer[harm]) {
	defer func() {
		_ = down.Close()
		p.mu.Lock()
		delete(p.open, down)
		p.mu.Unlock()
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := up.Read(buffer)
		if err != nil {
			return
		}
		if h := lost.Load(); h != nil { // handled, and the answer is lost
			_ = up.Close()
			close(h.done)
			return
		}
		if late := time.Duration(p.late.Load()); late > 0 {
			<-time.After(late)
		}
		if _, err := down.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// hit is the harm that is planned for a request.
func (p *Proxy) hit(request []byte) *harm {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.next
	if h == nil || !bytes.Contains(request, h.text) {
		return nil
	}
	p.next = nil
	return h
}

// twice sends a request over a connection of its own, and waits for the answer.
func (p *Proxy) twice(request []byte) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.to)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(request); err == nil {
		_, _ = conn.Read(make([]byte, 1<<16)) // that it came is enough
	}
}
