package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Client locks names in one store. It is made by [New] or [Open], is safe for
// use by many goroutines, and is meant to be shared: goroutines of one client
// that wait for one name cost the store one waiter.
//
// Its goroutines: one timer callback that renews leases, beats places and
// tells losses (keeper.go); one for each batch that is on its way to the
// store; one for each name that is waited for (serve.go). All end before
// Close returns.
type Client struct {
	store     driver.Store
	props     driver.Properties
	queuer    driver.Queuer    // nil where the store keeps no places
	blocker   driver.Blocker   // nil where the wait is not an operation
	inspector driver.Inspector // these three nil where the store cannot
	lister    driver.Lister
	breaker   driver.Breaker
	valuer    driver.Valuer // nil where the store keeps no values
	detacher  driver.Detacher
	shard     func(driver.Ref) int
	maxBatch  int
	signals   bool       // the store speaks up by itself
	committer *committer // nil where the store carries no batches

	opts  Options
	label string
	log   *slog.Logger

	// life ends in Close: the parent of all waiting on behalf of the client.
	life context.Context
	// always never ends.
	always   context.Context
	timeouts timeouts
	end      context.CancelFunc
	// Calls of users and what serves them; added to under mu, not after closed.
	work sync.WaitGroup
	// What the keeper starts; added to under mu, not after stopped.
	keeping sync.WaitGroup

	closeOnce chan struct{} // filled by the first Close
	closeDone chan struct{} // closed when it is done
	closeErr  error
	settling  chan struct{} // wakes Close when a debt is paid; one entry

	// mu guards all below, and all fields of lines, waiters, holds, places and
	// debts. Nothing under it blocks.
	mu       sync.Mutex
	retiring bool // no new terms
	closed   bool // no new work
	stopped  bool // no new keeping

	lines     map[lineKey]*line        // those with a hold or a waiter, and some idle ones
	aging     []*line                  // idle ones, oldest first: see line.tidy
	places    map[driver.Owner]*place  // on their way or waiting; signals may concern them
	holds     map[driver.Owner]*hold   // live, by owner
	keyed     map[reentrancyKey]*Lease // a live lease with the key
	duties    map[string]*duty         // what leaders do, by key: see term.go
	outlooks  map[string]*outlook      // elections that are observed, by name
	debts     map[*debt]struct{}       // releases that the store still has to answer
	arrived   uint64                   // number of the latest waiter
	lingering int                      // holds that MinHold keeps: see hold.linger
	keeper    keeper
}

// New makes a client of a store and takes the store over: Close closes it. On
// an error the store is left to the caller. opts may be nil. Problems of opts
// are reported all at once as ErrInvalid; a store that gives less than
// Options.Require is ErrUnsupported.
func New(store driver.Store, opts *Options) (*Client, error) {
	if store == nil {
		return nil, &Error{Op: "open", Kind: ErrInvalid, Err: textError("no store")}
	}
	c := &Client{
		store: store, props: store.Properties(),
		lines: map[lineKey]*line{}, places: map[driver.Owner]*place{}, holds: map[driver.Owner]*hold{},
		closeOnce: make(chan struct{}, 1), closeDone: make(chan struct{}), settling: make(chan struct{}, 1),
		keyed: map[reentrancyKey]*Lease{}, duties: map[string]*duty{}, outlooks: map[string]*outlook{}, debts: map[*debt]struct{}{},
	}
	if opts != nil {
		c.opts = *opts
	}
	if err := c.opts.validate(); err != nil {
		return nil, c.errorf("open", "", ErrInvalid, err)
	}
	c.opts.TTL = cmp.Or(c.opts.TTL, c.defaultTTL())
	if c.tooLong(c.opts.TTL) {
		return nil, c.errorf("open", "", ErrInvalid, textError("ttl: this store takes at most "+c.props.MaxTTL.String()))
	}
	c.label = cmp.Or(c.opts.Label, defaultLabel())
	c.log = cmp.Or(c.opts.Logger, slog.Default())
	c.findAbilities()
	if err := c.opts.Require.check(c.props); err != nil {
		return nil, c.errorf("open", "", ErrUnsupported, err)
	}
	c.always = context.Background()
	c.life, c.end = context.WithCancel(context.Background())
	c.timeouts.life, c.timeouts.end = context.WithCancel(context.Background())
	c.keeper.init(c)
	if s, ok := store.(driver.Signaler); ok {
		c.signals = true
		s.Listen(c.signal)
	}
	return c, nil
}

// Open makes a client of the store that a URL names, e.g.
// "redis://127.0.0.1:6379?prefix=shop". The package of the store must be
// imported. A malformed URL, an unknown scheme or parameter is ErrInvalid.
// Errors never hold a secret of the URL.
func Open(ctx context.Context, rawURL string, opts *Options) (*Client, error) {
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
	invalid := func(err error) error { return &Error{Op: "open", Kind: ErrInvalid, Err: err} }
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, invalid(errors.New("malformed store URL")) // the parser's error quotes the URL
	}
	if err = takePrefix(u, &o); err != nil {
		return nil, invalid(err)
	}
	if err = o.validate(); err != nil {
		return nil, invalid(err)
	}
	store, err := driver.Open(ctx, u, &driver.OpenOptions{TTL: cmp.Or(o.TTL, DefaultTTL)})
	if err != nil {
		return nil, &Error{Op: "open", Store: u.Scheme, Kind: openKind(ctx, err), Err: err}
	}
	c, err := New(store, &o)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return c, nil
}

// takePrefix moves the prefix of a URL to the options; all else is the store's.
func takePrefix(u *url.URL, o *Options) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("malformed query in the store URL")
	}
	if !query.Has("prefix") {
		return nil
	}
	prefix := query.Get("prefix")
	if len(query["prefix"]) > 1 || o.Prefix != "" && o.Prefix != prefix {
		return errors.New("two prefixes, in the store URL or beside it")
	}
	o.Prefix = prefix
	query.Del("prefix")
	u.RawQuery = query.Encode()
	return nil
}

func openKind(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if k := driver.KindOf(err); k != driver.Indeterminate {
		return kindError(k)
	}
	return ErrUnavailable // nothing was asked of the store yet
}

func (c *Client) findAbilities() {
	switch c.props.Wait {
	case driver.ByPlaces:
		c.queuer, _ = c.store.(driver.Queuer)
	case driver.ByParking:
		c.blocker, _ = c.store.(driver.Blocker)
	case driver.ByPolling:
	}
	if c.props.Inspect {
		c.inspector, _ = c.store.(driver.Inspector)
	}
	if c.props.List {
		c.lister, _ = c.store.(driver.Lister)
	}
	if c.props.Break {
		c.breaker, _ = c.store.(driver.Breaker)
	}
	if c.props.Value {
		c.valuer, _ = c.store.(driver.Valuer)
	}
	c.detacher, _ = c.store.(driver.Detacher)
	c.shard = func(driver.Ref) int { return 0 }
	if s, ok := c.store.(driver.Sharder); ok {
		c.shard = s.Shard
	}
	c.maxBatch = 256
	if b, ok := c.store.(driver.Batcher); ok {
		c.maxBatch = b.MaxBatch()
		c.committer = newCommitter(c, b)
	}
}

// defaultTTL is 30 s, or the most that the store takes.
func (c *Client) defaultTTL() time.Duration {
	ttl := DefaultTTL
	if c.props.MaxTTL != 0 {
		ttl = min(ttl, c.props.MaxTTL)
	}
	return max(ttl, c.props.MinTTL)
}

// Properties are the promises of the client's store. They do not change, but that
// Warnings may grow.
func (c *Client) Properties() driver.Properties {
	p := c.props
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		p.Warnings = c.store.Properties().Warnings
	}
	return p
}

// Store is the store underneath, for abilities that this package has no
// method for. Using it to change locks of this client voids its promises.
func (c *Client) Store() driver.Store { return c.store }

func (r Require) check(p driver.Properties) error {
	var errs []error
	if p.Class < r.Class {
		errs = append(errs, fmt.Errorf("class %v is required, %s gives %v", r.Class, p.Store, p.Class))
	}
	if r.Fencing && !p.Fencing {
		errs = append(errs, fmt.Errorf("fencing tokens are required, %s gives none", p.Store))
	}
	if r.Fair && !p.Fair {
		errs = append(errs, fmt.Errorf("fairness is required, %s does not promise it", p.Store))
	}
	return errors.Join(errs...)
}

// errorf makes the typed error of this client.
func (c *Client) errorf(op, name string, kind, cause error) *Error {
	return &Error{Op: op, Name: name, Store: c.props.Store, Kind: kind, Err: cause}
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	program := "?"
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	label := fmt.Sprintf("%s/%s[%d]", host, program, os.Getpid())
	return strings.ToValidUTF8(label[:min(len(label), MaxLabelBytes)], "")
}

// background runs fn on a goroutine that Close waits for. After Close, which
// ends all that such work would end, it does nothing and is false.
func (c *Client) background(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Go(fn)
	}
	return !c.closed
}

// enter begins a user's call, which Close waits for; done ends it.
func (c *Client) enter(op, name string) (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.errorf(op, name, ErrClosed, nil)
	}
	c.work.Add(1)
	return c.work.Done, nil
}
