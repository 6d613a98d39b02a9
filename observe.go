package holdfast

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"iter"
	"strconv"
	"time"
)

// Leader is who leads an election, and what he says of himself. The zero Leader is
// nobody.
type Leader struct {
	Owner string // 32 hexadecimal digits
	Label string
	Token uint64 // of the term; 0 if the store gives none, or not before something was proclaimed
	Value string // "" until something was proclaimed, a moment after the term began
	seq   uint64 // of the value
}

// None tells whether nobody leads.
func (l Leader) None() bool { return l.Owner == "" }

// MarshalJSON gives the token as a decimal string, as [Holder.MarshalJSON].
func (l Leader) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Owner string `json:"owner,omitempty"`
		Label string `json:"label,omitempty"`
		Token string `json:"token"`
		Value string `json:"value"`
	}{l.Owner, l.Label, strconv.FormatUint(l.Token, 10), l.Value})
}

// Leader asks the store who leads, in one request; the zero Leader if nobody does.
// Whoever holds the name by another lock than an election's leads it too, and says
// nothing. Who leads may have changed when the answer arrives: what depends on it
// must be checked by the token. Errors: those of [Client.Inspect].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	l, _, err := e.look(ctx, "leader")
	return l, err
}

// Observe yields who leads: at once, and then whenever there is another leader,
// another value, or nobody any more, until ctx ends or the loop is left. A loop that
// takes its time delays nobody and is then told the latest; what came and went
// meanwhile is passed over, as it is where a store that must be asked is asked too
// late: every half second, on local stores ten times a second. The latest is never
// missed, and nothing older follows it. All who observe an election through one
// client cost the store as much as one.
//
// When the store does not answer, the error is yielded once, with the zero Leader:
// who leads is not known then. The loop goes on, and is told the leader when the store
// answers again, also if it is the same. ErrClosed and errors that no further try can
// mend end it. That ctx ended is no error.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		v := e.c.observer(e)
		defer v.leave()
		for {
			l, err := v.next(ctx)
			if ctx.Err() != nil || !yield(l, err) || err != nil && !retriable(err) {
				return
			}
		}
	}
}

// look asks once, and also tells how long the term runs if nothing happens.
func (e *Election) look(ctx context.Context, op string) (Leader, time.Duration, error) {
	c := e.c
	if err := validName(e.name); err != nil {
		return Leader{}, 0, c.errorf(op, e.name, ErrInvalid, err)
	}
	if c.valuer == nil {
		return Leader{}, 0, c.errorf(op, e.name, ErrUnsupported, textError("this store keeps no values"))
	}
	done, err := c.enter(op, e.name)
	if err != nil {
		return Leader{}, 0, err
	}
	defer done()
	rctx, cancel := c.bounded(ctx, MaxTTL)
	defer cancel()
	h, err := c.valuer.Leader(rctx, c.storeName(e.name))
	switch {
	case err != nil:
		return Leader{}, 0, c.failure(ctx, op, e.name, err)
	case h == nil:
		return Leader{}, 0, nil
	}
	return Leader{
		Owner: hex.EncodeToString(h.Owner[:]), Label: h.Label, Token: c.fullToken(h.Token, 0), Value: h.Value, seq: h.Seq,
	}, h.Left, nil
}

// observer is one loop over [Election.Observe].
type observer struct {
	o      *outlook
	told   bool
	failed bool // the last was an error
	last   Leader
}

// next waits for something that the loop does not know yet, and that is not older
// than this call.
func (v *observer) next(ctx context.Context) (Leader, error) {
	c, from := v.o.e.c, v.o.want()
	for {
		c.mu.Lock()
		s, news := v.o.sight, v.o.news
		c.mu.Unlock()
		if (s.look >= from || s.final()) && v.learns(s) {
			return s.leader, s.err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return Leader{}, ctx.Err()
		}
	}
}

// learns tells whether a sight is to be told.
func (v *observer) learns(s sight) bool {
	if s.err != nil {
		news := !v.failed || !retriable(s.err)
		v.failed = true
		return news
	}
	if v.told && !v.failed && s.leader == v.last {
		return false
	}
	v.told, v.failed, v.last = true, false, s.leader
	return true
}
