package holdfast

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// handlePrefix names the version of the text form (docs/wire.md).
const handlePrefix = "hf1."

// handle is what another process needs to go on with a hold.
type handle struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix,omitempty"`
	Mode   string `json:"mode"`
	N      int    `json:"permits,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Owner  string `json:"owner"`
	Token  uint64 `json:"token,string"`
	TTL    int64  `json:"ttl_ms"`
	// NoRenew: the lease ends by itself, also when it is adopted.
	NoRenew bool `json:"no_renew,omitempty"`
}

// Handle ends the lease here (ErrReleased), without a word to the store if it can
// be helped, and gives a text with which another process goes on: see
// [Client.Adopt]. Whoever has it is the holder; it can be used again and again.
// The hold ends a TTL after its last renewal unless it is adopted. Handle takes
// up to 2 s if a renewal is on its way, or the grant of another's release has
// still to be claimed. ErrUnsupported where holds are bound to this process or a
// connection; ErrConflict if the hold is shared with other leases, or has a
// MinHold or MaxHold, which a handle does not carry.
func (l *Lease) Handle() (text string, err error) {
	c := l.hold.c
	if l.hold.ask.elects {
		return "", l.errorf("handle", ErrInvalid, textError("a term of an election ends with its leader"))
	}
	if !c.props.Handles {
		return "", l.errorf("handle", ErrUnsupported, textError("a hold on this store cannot leave its process"))
	}
	done, err := c.enter("handle", l.Name())
	if err != nil {
		return "", err
	}
	defer done()
	if err = l.claimForHandle(); err == nil {
		text, err = l.handOut()
	}
	return text, err
}

// handOut ends the lease and makes its handle.
func (l *Lease) handOut() (string, error) {
	h := l.hold
	c := h.c
	c.mu.Lock()
	if err := l.ended("handle"); err != nil {
		c.mu.Unlock()
		return "", err
	}
	if len(h.leases) > 1 || h.ask.minHold > 0 || h.ask.maxHold > 0 {
		c.mu.Unlock()
		return "", l.errorf("handle", ErrConflict, textError("other leases share the hold, or MinHold or MaxHold bound it"))
	}
	told := l.told
	l.finish(ErrReleased)
	asking := h.asking
	h.retire()
	h.line.stir()
	c.mu.Unlock()
	l.endContext()
	if told {
		c.tellEnd(l, ErrReleased, 0, nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxRequestTimeout)
	defer cancel()
	settled(ctx, asking)
	if c.detacher != nil {
		res := c.detacher.Detach(ctx, driver.RenewRequest{Ref: h.ref(), TTL: h.ask.ttl})
		if res.Err != nil || res.Status != driver.Renewed {
			c.mu.Lock()
			c.owe(&debt{req: driver.ReleaseRequest{Ref: h.ref()}, until: driver.Now().Add(h.ask.window)})
			c.mu.Unlock()
			return "", l.errorf("handle", ErrLost, res.Err)
		}
	}
	text, err := json.Marshal(handle{
		Name: h.line.name.Full, Prefix: h.line.name.Prefix, Mode: h.ask.mode.String(), N: h.ask.n, Limit: h.ask.limit,
		Owner: l.Owner(), Token: l.token, TTL: h.ask.ttl.Milliseconds(), NoRenew: h.ask.noRenew,
	})
	if err != nil {
		return "", l.errorf("handle", ErrInvalid, err)
	}
	return handlePrefix + base64.RawURLEncoding.EncodeToString(text), nil
}

// claimForHandle claims a hold that lives for a claim window only, which would
// end before the handle can be used.
func (l *Lease) claimForHandle() error {
	c := l.hold.c
	c.mu.Lock()
	unclaimed, ttl := l.hold.unclaimed && l.cause == nil, l.hold.ask.ttl
	c.mu.Unlock()
	if !unclaimed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxRequestTimeout)
	defer cancel()
	return l.hold.askNow(ctx, l, "handle", ttl)
}

// Adopt goes on with the hold that a handle names, in this process: it is
// renewed first, and trusted from that. The lease then renews itself. ErrLost if
// the hold has ended; ErrInvalid if the text is no handle, or of a client with
// another prefix; ErrUnsupported where there are no handles; ErrConflict if this
// client has it already. When ctx ends half-way the hold may have been renewed.
func (c *Client) Adopt(ctx context.Context, text string) (*Lease, error) {
	if !c.props.Handles {
		return nil, c.errorf("adopt", "", ErrUnsupported, nil)
	}
	p, token, err := c.parseHandle(text)
	if err != nil {
		return nil, c.errorf("adopt", "", ErrInvalid, err)
	}
	name := p.name.Full
	done, err := c.enter("adopt", name)
	if err != nil {
		return nil, err
	}
	defer done()
	ref := p.ref()
	ref.Token = c.storeToken(token)
	rctx, cancel := c.bounded(ctx, p.ask.ttl)
	defer cancel()
	p.sent = driver.Now()
	res := c.store.Renew(rctx, []driver.RenewRequest{{Ref: ref, TTL: p.ask.ttl, Label: p.label}})[0]
	switch {
	case res.Err != nil:
		return nil, c.failure(ctx, "adopt", name, res.Err)
	case res.Status == driver.Lost:
		return nil, c.errorf("adopt", name, ErrLost, nil)
	case res.Status == driver.Broken:
		return nil, c.errorf("adopt", name, ErrBroken, textError(res.Reason))
	}
	l, err := c.adopted(ctx, p, token, res)
	if err == nil {
		c.tellAcquired(&waiter{ctx: ctx, ask: p.ask, start: p.sent}, l)
	}
	return l, err
}

func (c *Client) adopted(ctx context.Context, p *place, token uint64, res driver.RenewResult) (*Lease, error) {
	deadline := trustUntil(cmp.Or(res.Sent, p.sent), res.Window)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.errorf("adopt", p.name.Full, ErrClosed, nil)
	}
	if c.holds[p.owner] != nil {
		return nil, c.errorf("adopt", p.name.Full, ErrConflict, textError("this client has adopted it already"))
	}
	if deadline <= driver.Now() {
		return nil, c.errorf("adopt", p.name.Full, ErrLost, textError("the answer came too late"))
	}
	h := c.newHold(c.line(p.name, false), p, driver.Grant{Token: c.storeToken(token), Window: res.Window}, driver.Now(), deadline)
	if !c.props.FinalTokens {
		h.seq = uint8(token) //nolint:gosec // the low byte is the local sequence
	}
	return h.addLease(&waiter{ask: p.ask, ctx: ctx}, token, h.granted), nil
}

func (c *Client) parseHandle(text string) (*place, uint64, error) {
	coded, ok := strings.CutPrefix(text, handlePrefix)
	raw, err := base64.RawURLEncoding.DecodeString(coded)
	var h handle
	if !ok || err != nil || json.Unmarshal(raw, &h) != nil {
		return nil, 0, errors.New("not a handle")
	}
	owner, err := hex.DecodeString(h.Owner)
	p := &place{c: c, label: c.label}
	mode, known := map[string]Mode{"exclusive": Exclusive, "shared": Shared, "permits": Permits}[h.Mode]
	if err != nil || len(owner) != len(p.owner) || !known {
		return nil, 0, errors.New("not a handle")
	}
	if h.Prefix != c.opts.Prefix {
		return nil, 0, fmt.Errorf("the handle is of prefix %q, the client of %q", h.Prefix, c.opts.Prefix)
	}
	ttl := time.Duration(h.TTL) * time.Millisecond
	if err := errors.Join(validName(h.Name), validTTL("ttl", ttl)); err != nil {
		return nil, 0, err
	}
	if c.tooLong(ttl) {
		return nil, 0, errors.New("ttl is over what the store takes")
	}
	copy(p.owner[:], owner)
	p.name = c.storeName(h.Name)
	p.ask = ask{mode: mode, n: h.N, limit: h.Limit, ttl: ttl, window: ttl, noRenew: h.NoRenew}
	return p, h.Token, nil
}
