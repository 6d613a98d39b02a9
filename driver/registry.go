package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Opener makes a store from a URL. It refuses parameters that it does not
// know (see [Params]) and never puts a secret of the URL into an error.
type Opener func(ctx context.Context, u *url.URL, opts *OpenOptions) (Store, error)

// OpenOptions are what the client tells an Opener; never nil.
type OpenOptions struct {
	// TTL is the client's default: the length of the session on stores where
	// one session serves all leases.
	TTL time.Duration
}

var registry = struct {
	sync.RWMutex
	openers map[string]Opener
}{openers: map[string]Opener{}}

// Register makes a URL scheme known; packages of drivers call it from init. A
// scheme that is registered twice panics: two packages would decide by import
// order which store a URL means.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.openers[scheme]; taken {
		panic("holdfast: scheme " + scheme + " registered twice")
	}
	registry.openers[scheme] = open
}

// Schemes lists the registered URL schemes in order.
func Schemes() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// Open opens the store that a URL names. Errors about the URL itself are
// Invalid failures. opts may be nil.
func Open(ctx context.Context, u *url.URL, opts *OpenOptions) (Store, error) {
	registry.RLock()
	open := registry.openers[u.Scheme]
	registry.RUnlock()
	if open == nil {
		return nil, &Failure{Invalid, fmt.Errorf("unknown scheme %q; this program knows %s: import the package of the store you want",
			u.Scheme, strings.Join(Schemes(), ", "))}
	}
	if opts == nil {
		opts = &OpenOptions{}
	}
	return open(ctx, u, opts)
}

// Params reads a URL's query and notices what nobody asked for.
type Params struct {
	values url.Values
	errs   []error
}

// NewParams reads the query of u.
func NewParams(u *url.URL) *Params {
	values, err := url.ParseQuery(u.RawQuery)
	p := &Params{values: values}
	if err != nil {
		p.errs = append(p.errs, errors.New("malformed query"))
	}
	return p
}

// Take returns a parameter's value, "" if it is absent. A repeated one is an
// error.
func (p *Params) Take(key string) string {
	vs := p.values[key]
	delete(p.values, key)
	if len(vs) > 1 {
		p.errs = append(p.errs, fmt.Errorf("parameter %q given %d times", key, len(vs)))
	}
	if len(vs) == 0 {
		return ""
	}
	return vs[0]
}

// Bool returns a parameter that is "true" or "false"; absent is false.
func (p *Params) Bool(key string) bool {
	switch v := p.Take(key); v {
	case "true":
		return true
	case "", "false":
	default:
		p.errs = append(p.errs, fmt.Errorf("parameter %q must be true or false", key))
	}
	return false
}

// Done reports every problem at once, unknown parameters among them, as an
// Invalid failure; nil if there was none.
func (p *Params) Done() error {
	for _, key := range slices.Sorted(maps.Keys(p.values)) {
		p.errs = append(p.errs, fmt.Errorf("unknown parameter %q", key))
	}
	if len(p.errs) == 0 {
		return nil
	}
	return &Failure{Invalid, errors.Join(p.errs...)}
}
