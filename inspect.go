package holdfast

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

// Record is what the store knows of one name.
type Record struct {
	Name    string   `json:"name"`
	Mode    Mode     `json:"mode"`            // 0 if it is free
	Limit   int      `json:"limit,omitempty"` // of a semaphore
	Holders []Holder `json:"holders,omitempty"`
	Waiters []Waiter `json:"waiters,omitempty"` // in order; nil if the store does not tell
}

// Holder is one who holds a name. Times are spans on the store's clock.
type Holder struct {
	Owner   string // 32 hexadecimal digits; empty if the record is damaged
	Label   string
	Token   uint64 // 0 if the store gives none; after a local hand-over it may be a little behind
	Mode    Mode
	Permits int
	Held    time.Duration // since the grant
	Left    time.Duration // until it ends unless renewed; 0 if it has no end of its own
	Broken  string        // the reason, if it was revoked
	Value   string        // what it says of itself: see Term.Proclaim
}

// Waiter is one who waits for a name.
type Waiter struct {
	Owner   string
	Label   string
	Mode    Mode
	Permits int
	Waited  time.Duration
}

// String gives one line for people.
func (h Holder) String() string {
	var b strings.Builder
	b.WriteString("held by " + cmp.Or(oneLine(h.Label), "owner "+h.Owner))
	if h.Token != 0 {
		fmt.Fprintf(&b, ", token %d", h.Token)
	}
	if h.Held > 0 {
		fmt.Fprintf(&b, ", for %v", h.Held.Round(time.Millisecond))
	}
	if h.Left > 0 {
		fmt.Fprintf(&b, ", ttl left %v", h.Left.Round(time.Millisecond))
	}
	if h.Broken != "" {
		b.WriteString(", broken: " + oneLine(h.Broken))
	}
	return b.String()
}

// oneLine keeps text of others from making lines in a log.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// MarshalJSON gives the token as a decimal string (numbers of 2^53 and more
// lose digits in many languages) and spans in whole milliseconds.
func (h Holder) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Owner   string `json:"owner"`
		Label   string `json:"label,omitempty"`
		Token   string `json:"token"`
		Mode    Mode   `json:"mode"`
		Permits int    `json:"permits,omitempty"`
		Held    int64  `json:"held_ms"`
		Left    int64  `json:"left_ms,omitempty"`
		Broken  string `json:"broken,omitempty"`
		Value   string `json:"value,omitempty"`
	}{h.Owner, h.Label, strconv.FormatUint(h.Token, 10), h.Mode, h.Permits, h.Held.Milliseconds(), h.Left.Milliseconds(), h.Broken, h.Value})
}

// MarshalJSON gives the span in whole milliseconds, as [Holder.MarshalJSON].
func (w Waiter) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Owner   string `json:"owner"`
		Label   string `json:"label,omitempty"`
		Mode    Mode   `json:"mode"`
		Permits int    `json:"permits,omitempty"`
		Waited  int64  `json:"waited_ms"`
	}{w.Owner, w.Label, w.Mode, w.Permits, w.Waited.Milliseconds()})
}

// Inspect tells who holds and who waits for a name, in one request that
// disturbs nobody. A free name has neither. Errors: ErrInvalid, ErrUnsupported
// where the store cannot tell, ErrUnavailable, ErrIndeterminate, ErrDenied,
// ErrClosed, or ctx's.
func (c *Client) Inspect(ctx context.Context, name string) (Record, error) {
	if err := validName(name); err != nil {
		return Record{}, c.errorf("inspect", name, ErrInvalid, err)
	}
	if c.inspector == nil {
		return Record{}, c.errorf("inspect", name, ErrUnsupported, nil)
	}
	done, err := c.enter("inspect", name)
	if err != nil {
		return Record{}, err
	}
	defer done()
	rctx, cancel := c.bounded(ctx, MaxTTL)
	defer cancel()
	r, err := c.inspector.Inspect(rctx, c.storeName(name))
	if err != nil {
		return Record{}, c.failure(ctx, "inspect", name, err)
	}
	r.Name = name
	return c.newRecord(r), nil
}

// List yields the records of the names that begin with prefix and are held or
// waited for, in no particular order. One that is taken and freed while the
// listing runs may be missing. All records are fetched before the first is
// yielded. After an error, which are those of Inspect, it ends.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		records, err := c.list(ctx, prefix)
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(Record{}, err)
		}
	}
}

// list collects the records, so that nothing of the user's runs while Close
// waits for us.
func (c *Client) list(ctx context.Context, prefix string) (records []Record, err error) {
	if c.lister == nil {
		return nil, c.errorf("list", "", ErrUnsupported, nil)
	}
	done, err := c.enter("list", "")
	if err != nil {
		return nil, err
	}
	defer done()
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	for r, err := range c.lister.List(rctx, c.opts.Prefix) {
		if err != nil && c.life.Err() != nil {
			return records, c.errorf("list", "", ErrClosed, nil)
		}
		if err != nil {
			return records, c.failure(ctx, "list", "", err)
		}
		if strings.HasPrefix(r.Name, prefix) {
			records = append(records, c.newRecord(r))
		}
	}
	return records, nil
}

// BreakOptions say which hold of a name is to be broken, and why.
type BreakOptions struct {
	// Token is the hold's, as Lease.Token or Holder.Token gives it; or Owner,
	// 32 hexadecimal digits, where it has none. One must be given: nobody
	// breaks a hold that he has not looked at.
	Token uint64
	Owner string
	// Reason is required, By says who asks; both reach the holder.
	Reason, By string
	// Force frees the name at once. The holder may go on until it learns of it,
	// so two may run.
	Force bool
}

// Break revokes a hold. Its holder learns it at its next renewal or sooner: its
// leases end with ErrBroken. The name is granted to another when the holder has
// released, or its lease has ended; with Force at once. Errors: ErrNotHeld if
// nobody holds the name, ErrConflict if the present holder is another,
// ErrInvalid, ErrUnsupported, and those of Inspect. When ctx ends half-way, or on
// ErrIndeterminate, the hold may have been broken.
func (c *Client) Break(ctx context.Context, name string, o BreakOptions) error {
	req := &driver.BreakRequest{Name: c.storeName(name), Token: c.storeToken(o.Token), Force: o.Force, Reason: o.Reason}
	if o.By != "" {
		req.Reason += " (by " + o.By + ")"
	}
	if err := o.validate(name, req); err != nil {
		return c.errorf("break", name, ErrInvalid, err)
	}
	if c.breaker == nil {
		return c.errorf("break", name, ErrUnsupported, nil)
	}
	done, err := c.enter("break", name)
	if err != nil {
		return err
	}
	defer done()
	rctx, cancel := c.bounded(ctx, MaxTTL)
	defer cancel()
	status, err := c.breaker.Break(rctx, req)
	switch {
	case err != nil:
		return c.failure(ctx, "break", name, err)
	case status == driver.NotHeld:
		return c.errorf("break", name, ErrNotHeld, nil)
	case status == driver.Mismatch:
		return c.errorf("break", name, ErrConflict, textError("another hold than the expected one"))
	}
	return nil
}

// validate reports every problem at once, and sets the owner of the request.
func (o *BreakOptions) validate(name string, req *driver.BreakRequest) error {
	errs := []error{validName(name)}
	owner, err := hex.DecodeString(o.Owner)
	switch {
	case o.Owner == "" && o.Token == 0:
		errs = append(errs, textError("the expected token or owner is missing"))
	case o.Owner != "" && (err != nil || len(owner) != len(req.Owner)):
		errs = append(errs, textError("owner: must be 32 hexadecimal digits"))
	}
	if o.Reason == "" || len(req.Reason) > 2*MaxLabelBytes {
		errs = append(errs, fmt.Errorf("a reason of 1 to %d bytes is needed", 2*MaxLabelBytes))
	}
	copy(req.Owner[:], owner)
	return errors.Join(errs...)
}

func (c *Client) newRecord(r driver.Record) Record {
	out := Record{Name: r.Name}
	if len(r.Holders)+len(r.Waiters) > 0 {
		out.Mode, out.Limit = r.Mode, r.Limit
	}
	for i := range r.Holders {
		out.Holders = append(out.Holders, *c.newHolder(&r.Holders[i]))
	}
	for _, w := range r.Waiters {
		out.Waiters = append(out.Waiters, Waiter{Owner: hex.EncodeToString(w.Owner[:]), Label: w.Label, Mode: w.Mode, Permits: w.Permits, Waited: w.Waited})
	}
	return out
}

func (c *Client) newHolder(h *driver.Holder) *Holder {
	if h == nil {
		return nil
	}
	owner := ""
	if h.Owner != (driver.Owner{}) {
		owner = hex.EncodeToString(h.Owner[:])
	}
	return &Holder{
		Owner: owner, Label: h.Label, Token: c.fullToken(h.Token, 0), Mode: h.Mode,
		Permits: h.Permits, Held: h.Held, Left: h.Left, Broken: h.Broken, Value: h.Value,
	}
}
