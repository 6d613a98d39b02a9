package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// Election is a name that one of several candidates leads at a time. Who leads
// holds the name exclusive, like any lock of that name, so Inspect shows the leader
// with those who wait to follow it in order, and Break makes it step down. An
// Election has no state and may be used by many goroutines; each call of Campaign
// or Run is a candidate of its own.
type Election struct {
	c    *Client
	name string
	opts ElectionOptions
}

// ElectionOptions shape the candidates of an election. What else
// AcquireOptions have makes no sense for a leader, who is alone, renews, and leads
// until he steps down.
type ElectionOptions struct {
	// TTL is how long a leader that has died or is cut off keeps others from
	// leading; 0 means the client's. See AcquireOptions.TTL.
	TTL time.Duration
	// Grace is how long before the end of a term that could not be renewed Run
	// ends the ctx of its func, which must return within it; default TTL/6. TTL/3
	// or more is ErrInvalid.
	Grace time.Duration
	// Value is what Run says of itself in each term, until the func calls
	// Term.Proclaim. See there.
	Value string
	// Label overrides Options.Label.
	Label string
}

// Election returns the election of a name.
func (c *Client) Election(name string) *Election { return &Election{c: c, name: name} }

// With returns the election with other options. Problems of the options are
// reported by the calls that need them.
func (e *Election) With(o ElectionOptions) *Election { return &Election{c: e.c, name: e.name, opts: o} }

// Name is what the candidates lead.
func (e *Election) Name() string { return e.name }

// Term is the time of one leader: the lease of the name. Its token is larger
// than that of every term before, also of this client: send it along with what
// the leader does, so that the resource can refuse a leader of the past. Context
// ends when the term does; Valid is to be called right before a side effect.
type Term struct {
	*Lease
	// speaking is filled by who proclaims; said numbers what was said.
	speaking chan struct{}
	said     uint64
}

// Campaign waits until this candidate leads, and returns its term, which renews
// itself until it ends by Resign, Close or loss. Candidates lead in order of
// arrival where the store is fair. If ctx ends first nothing is left behind, as
// with [Client.Acquire], whose errors it has; while the store is unavailable it
// goes on trying.
//
// value is what the leader says of itself; see [Term.Proclaim]. It can be read
// when Campaign returns; ErrUnsupported if it is not "" on a store that keeps no
// values. Campaign with the context of a term of this very election is
// ErrConflict: it would wait for itself.
//
// Stop what is done as a leader before you resign, and when Context ends; Run does
// both.
func (e *Election) Campaign(ctx context.Context, value string) (*Term, error) {
	if err := e.validate(value); err != nil {
		return nil, err
	}
	for pause := (backoff{}); ; e.c.rest(ctx, pause.next()) {
		lease, err := e.c.Acquire(ctx, e.name, e.acquireOptions())
		if err != nil {
			return nil, campaignError(err)
		}
		term := &Term{Lease: lease, speaking: make(chan struct{}, 1)}
		if value == "" {
			return term, nil
		}
		switch err = term.proclaimFirst(ctx, value); {
		case err == nil:
			return term, nil
		case errors.Is(err, ErrLost): // before it began
			_ = term.Release(ctx)
		default:
			_ = term.Release(ctx)
			return nil, campaignError(err)
		}
	}
}

func (e *Election) acquireOptions() *AcquireOptions {
	return &AcquireOptions{TTL: e.opts.TTL, Label: e.opts.Label, elects: true}
}

// campaignError says that it was a campaign which failed.
func campaignError(err error) error {
	inner, ok := err.(*Error) //nolint:errorlint // made by this package, never wrapped
	if !ok {
		return err
	}
	outer := *inner
	outer.Op = "campaign"
	return &outer
}

func (e *Election) ttl() time.Duration {
	return max(cmp.Or(e.opts.TTL, e.c.opts.TTL), e.c.props.MinTTL)
}

func (e *Election) grace() time.Duration { return cmp.Or(e.opts.Grace, e.ttl()/graceFraction) }

// validate reports every problem of the options and a value at once.
func (e *Election) validate(value string) error {
	errs := []error{e.acquireOptions().validate(e.name), validValue(value)}
	if e.opts.Grace < 0 || e.opts.Grace >= e.ttl()/renewFraction {
		errs = append(errs, fmt.Errorf("grace %v: must be positive and below ttl/3 (%v)", e.opts.Grace, e.ttl()/renewFraction))
	}
	if err := errors.Join(errs...); err != nil {
		return e.c.errorf("campaign", e.name, ErrInvalid, err)
	}
	if value != "" && e.c.valuer == nil {
		return e.c.errorf("campaign", e.name, ErrUnsupported, textError("this store keeps no values"))
	}
	return nil
}

func validValue(value string) error {
	if len(value) > driver.MaxValue || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return fmt.Errorf("value: must be UTF-8 of at most %d bytes, without control characters", driver.MaxValue)
	}
	return nil
}

// Resign ends the term, so that the next candidate leads. It is Lease.Release:
// Valid is false from the first call on, also if ctx has ended or the store
// does not answer, and it may be repeated.
func (t *Term) Resign(ctx context.Context) error { return t.Release(ctx) }

// Proclaim sets what the leader says of itself, such as its address, in one
// request: UTF-8 of at most 1024 bytes without control characters, else
// ErrInvalid. Leader and Observe tell it to everybody until the term ends. Calls
// take effect in their order, and one after the other. The other errors are
// those of [Lease.Renew], and ErrUnsupported where the store keeps no values;
// after ErrUnavailable, ErrIndeterminate, or when ctx ends half-way, it may be
// said all the same, but never after something newer.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	c := t.hold.c
	if err := validValue(value); err != nil {
		return t.errorf("proclaim", ErrInvalid, err)
	}
	if c.valuer == nil {
		return t.errorf("proclaim", ErrUnsupported, textError("this store keeps no values"))
	}
	done, err := c.enter("proclaim", t.Name())
	if err != nil {
		return err
	}
	defer done()
	select {
	case t.speaking <- struct{}{}:
		defer func() { <-t.speaking }()
	case <-ctx.Done():
		return t.errorf("proclaim", ctx.Err(), nil)
	}
	t.said++
	return t.say(ctx, value)
}

// say sends one value.
func (t *Term) say(ctx context.Context, value string) error {
	h, c := t.hold, t.hold.c
	c.mu.Lock()
	err := t.ended("proclaim")
	ref, ttl := h.ref(), h.ask.ttl
	c.mu.Unlock()
	if err != nil {
		return err
	}
	rctx, cancel := c.bounded(ctx, ttl)
	defer cancel()
	held, err := c.valuer.SetValue(rctx, &driver.ValueRequest{Ref: ref, Seq: t.said, Value: value})
	if err != nil {
		return c.failure(ctx, "proclaim", t.Name(), err)
	}
	c.mu.Lock()
	var bye *farewell
	if !held {
		bye = c.lose(h, "the store no longer has it", "")
	}
	err = t.ended("proclaim")
	c.mu.Unlock()
	bye.end()
	bye.tell()
	return err
}

// proclaimFirst says what the candidate says of itself before its term begins,
// and tries for as long as it leads. To the caller it is a part of the wait.
func (t *Term) proclaimFirst(ctx context.Context, value string) error {
	c := t.hold.c
	last := &Error{} // of the store
	for pause := (backoff{}); ; {
		err := t.Proclaim(ctx, value)
		switch failed, ok := errors.AsType[*Error](err); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return c.waitError(t.Name(), ctx.Err(), last.Kind, last.Err, nil)
		case !ok || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrIndeterminate):
			return err
		default:
			last = failed
		}
		waiting, cancel := context.WithCancel(t.Context())
		stop := context.AfterFunc(ctx, cancel)
		c.sleep(waiting, pause.next())
		stop()
		cancel()
	}
}
