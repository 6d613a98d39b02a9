package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

const (
	// defaultTTL is package holdfast's, for those who open the store without it.
	defaultTTL = 30 * time.Second
	// maxKey is far below what a list of children may hold.
	maxKey = 512
	// maxNames is how many names are known.
	maxNames = 4096
	// setUp is how long New may ask for a session.
	setUp = 10 * time.Second
	// settle is longer than a request may linger in a server's queue.
	settle = 10 * time.Second
)

// Options of a store. The zero value, and nil, are those of a URL without
// parameters.
type Options struct {
	// Root is the node under which all names lie; default /holdfast. It is made
	// if it is missing.
	Root string
	// TTL is the longest that a lease may be trusted without proof of life;
	// default 30 s. The session's timeout is a third longer, and a dead holder's
	// names are free when it is over.
	TTL time.Duration
	// User and Password are digest credentials. With them nodes are made for
	// this user alone, unless Open is set.
	User, Password string
	// Open makes nodes that everybody may read and write, also with a User.
	Open bool
	// TLS makes encrypted connections.
	TLS *tls.Config
	// Dial makes connections in place of TCP; TLS is put on top.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// store is one client: one session at a time, and what it has in it.
type store struct {
	config  zk.Config
	root    string
	acl     []zk.ACL
	props   driver.Properties
	deliver func(driver.Signal)

	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	link    *link    // nil when the session has ended and nobody has made a new one
	opening *opening // of the session that is being made
	nodes   map[driver.Owner]*node
	doubts  map[driver.Owner]bool // attempts without an answer: a node may be there
	tombs   tombs                 // owners who were abandoned
	young   []*node               // holds that are not watched yet
	ripe    *time.Timer           // for them
}

// link is a session, and the watches in it.
type link struct {
	zk *zk.Session

	// Under store.mu.
	over     bool                        // it has ended
	watches  map[string]map[watcher]bool // by path, who is to be told
	names    map[string]*name            // by key: those whose node is watched
	lookouts map[string]*lookout         // by key
}

type opening struct {
	done chan struct{}
	err  error
}

var (
	_ driver.Queuer    = (*store)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Lister    = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
	_ driver.Watcher   = (*store)(nil)
)

// New makes a store on servers (host:port; 2181 if there is no port) of one
// ensemble, over a session of its own: trust in a lease rests on what was sent
// when, which a session that others use too does not tell. opts may be nil.
func New(servers []string, opts *Options) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUp)
	defer cancel()
	s, err := newStore(ctx, servers, opts)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(ctx context.Context, servers []string, opts *Options) (*store, error) {
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
	if o.Root == "" {
		o.Root = "/holdfast"
	}
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if err := o.validate(servers); err != nil {
		return nil, &driver.Failure{Kind: driver.Invalid, Err: fmt.Errorf("zookeeper: %w", err)}
	}
	s := &store{
		root: strings.TrimSuffix(o.Root, "/"), acl: o.acl(),
		nodes: map[driver.Owner]*node{}, doubts: map[driver.Owner]bool{}, tombs: tombs{dead: map[driver.Owner]bool{}},
		deliver: func(driver.Signal) {},
	}
	s.config = zk.Config{Timeout: sessionFor(o.TTL), Dial: o.dial, Path: s.root + "/-"}
	for _, server := range servers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(strings.Trim(server, "[]"), "2181")
		}
		s.config.Servers = append(s.config.Servers, server)
	}
	if o.User != "" {
		s.config.Digest = o.User + ":" + o.Password
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.ripe = time.AfterFunc(time.Hour, s.guardYoung)
	s.ripe.Stop()
	l, err := s.session(ctx)
	if err == nil {
		err = s.describe(ctx, l, o.TTL)
	}
	if err != nil {
		_ = s.Close() // nothing is in it
		return nil, err
	}
	return s, nil
}

func (o *Options) validate(servers []string) error {
	var errs []error
	if len(servers) == 0 {
		errs = append(errs, errors.New("no server is named"))
	}
	for _, server := range servers {
		if server == "" || server[0] == ':' {
			errs = append(errs, errors.New("a server without a name"))
		}
	}
	if o.Root[0] != '/' || strings.Contains(o.Root, "//") || strings.Contains(o.Root+"/", "/./") || strings.Contains(o.Root+"/", "/../") || strings.ContainsRune(o.Root, 0) {
		errs = append(errs, fmt.Errorf("%q is no path of a node", o.Root))
	}
	if o.User == "" && o.Password != "" {
		errs = append(errs, errors.New("a password without a user"))
	}
	if o.TTL < 0 {
		errs = append(errs, errors.New("a TTL below zero"))
	}
	return errors.Join(errs...)
}

func (o *Options) acl() []zk.ACL {
	if o.User != "" && !o.Open {
		return []zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}}
	}
	return []zk.ACL{{Perms: zk.PermAll, Scheme: "world", ID: "anyone"}}
}

func (o *Options) dial(ctx context.Context, addr string) (net.Conn, error) {
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	conn, err := dial(ctx, addr)
	if err != nil || o.TLS == nil {
		return conn, err
	}
	config := o.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// The session lives longer than we trust in it: see docs/decisions/010.
func sessionFor(ttl time.Duration) time.Duration {
	return (ttl*4/3 + time.Millisecond).Truncate(time.Millisecond)
}
func trustIn(session time.Duration) time.Duration { return session * 3 / 4 }

// describe states what the store promises, with the session that was granted.
func (s *store) describe(ctx context.Context, l *link, ttl time.Duration) error {
	longest := trustIn(l.zk.Timeout()).Truncate(time.Millisecond)
	s.props = driver.Properties{
		Store: "zookeeper", Class: driver.ClassA, Bound: driver.ByConnection, Wait: driver.ByPlaces,
		Abilities: driver.Abilities{Fair: true, Fencing: true, Shared: true, Permits: true, Break: true, List: true, Inspect: true, Value: true},
		MaxTTL:    longest, Names: driver.Names{MaxBytes: maxKey, Portable: true}, Settle: settle,
	}
	if longest < ttl {
		s.props.Warnings = append(s.props.Warnings, fmt.Sprintf("the servers grant sessions of at most %v: leases are trusted for %v at most", l.zk.Timeout(), longest))
	}
	replies, err := l.zk.Do(ctx, zk.GetData("/zookeeper/config", false))
	if err != nil {
		return err
	}
	if members, _, err := replies[0].Data(); err == nil && replies[0].Err == nil && strings.Count(string(members), "server.") < 3 { //nolint:mnd // a majority that may lose one
		s.props.Warnings = append(s.props.Warnings, "fewer than three servers: when one is down, so is the store")
	}
	return nil
}

func (s *store) Properties() driver.Properties { return s.props }

func (s *store) Listen(deliver func(driver.Signal)) { s.deliver = deliver }

// session is the present session; the first who finds none makes it, and all who
// need it meanwhile wait for that.
func (s *store) session(ctx context.Context) (*link, error) {
	s.mu.Lock()
	if s.closed || s.link != nil {
		defer s.mu.Unlock()
		if s.closed {
			return nil, &driver.Failure{Kind: driver.Unavailable, Err: errors.New("zookeeper: the store is closed")}
		}
		return s.link, nil
	}
	if s.opening == nil {
		s.opening = &opening{done: make(chan struct{})}
		s.wg.Go(s.open)
	}
	o := s.opening
	s.mu.Unlock()
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, &driver.Failure{Kind: driver.Unavailable, Err: fmt.Errorf("zookeeper: opening a session: %w", ctx.Err())}
	}
	if o.err != nil {
		return nil, o.err
	}
	return s.session(ctx)
}

// open makes a session.
func (s *store) open() {
	ctx, cancel := context.WithTimeout(s.life, setUp)
	defer cancel()
	l := &link{watches: map[string]map[watcher]bool{}, names: map[string]*name{}, lookouts: map[string]*lookout{}}
	config := s.config
	config.Event = func(e zk.Event) { s.event(l, e) }
	config.Resumed = func() { s.resumed(l) }
	config.Ended = func() { s.ended(l) }
	session, err := zk.Open(ctx, &config)
	s.mu.Lock()
	late := s.closed && err == nil
	if s.opening.err = err; err == nil && !late && !l.over {
		l.zk, s.link = session, l
	}
	close(s.opening.done)
	s.opening = nil
	s.mu.Unlock()
	if late { // Close did not see it
		session.Close(true)
	}
}

// ended loses all that was in a session.
func (s *store) ended(l *link) {
	var signals []driver.Signal
	s.mu.Lock()
	if !s.closed { // Close waits until all is told
		s.wg.Add(1)
		defer s.wg.Done()
	}
	if l.over = true; s.link == l {
		s.link = nil
	}
	for owner, n := range s.nodes {
		if n.in != l {
			continue
		}
		if n.state == held || n.state == broken {
			signals = append(signals, driver.Signal{Kind: driver.LostSignal, Owner: owner})
		}
		s.forget(n)
	}
	l.endLookouts(errMissed)
	s.mu.Unlock()
	for _, sig := range append(signals, driver.Signal{Kind: driver.MissedSignal}) {
		s.deliver(sig)
	}
}

// spawn runs f on a goroutine that Close waits for; not after Close. Under mu.
func (s *store) spawn(f func()) {
	if !s.closed {
		s.wg.Go(f)
	}
}

// Close leaves a session that has something in it to run out.
func (s *store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.ripe.Stop()
	l, empty := s.link, len(s.nodes) == 0 && len(s.doubts) == 0
	s.mu.Unlock()
	s.end()
	if l != nil {
		l.zk.Close(empty)
	}
	s.wg.Wait()
	return nil
}
