package holdfast

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Close ends the ctx of all that [Election.Run] does, and waits until it has
// returned, at most for its grace (called from within that work, it waits in
// vain). Then it releases all leases (or leaves them, see Options.LeaveOnClose), ends
// all waits with ErrClosed and all goroutines, and closes the store. If the
// store does not answer it takes 5 s, or Options.RequestTimeout if that is longer,
// and on a store whose requests cannot be cut short the rest of one more: then the
// error, ErrUnavailable, names what may remain there until it expires.
// Attempts whose answer was lost (as when their ctx ended half-way), that were
// undone since, but so lately that the store may yet receive them, are named in the
// log. Holds that MinHold keeps on a store bound to the connection are waited for.
// It may be called at any time and again; a repeated Close returns what the first
// one did.
func (c *Client) Close() error {
	select {
	case c.closeOnce <- struct{}{}:
		c.retire()
		c.closeErr = c.close()
		close(c.closeDone)
	default:
		<-c.closeDone // another is at it
	}
	return c.closeErr
}

func (c *Client) close() error {
	c.mu.Lock()
	c.closed = true
	for _, ln := range c.lines {
		for ln.first != nil {
			ln.resolve(ln.first, nil, c.errorf("acquire", ln.name.Full, ErrClosed, nil))
		}
	}
	byes := c.closeHolds()
	c.mu.Unlock()
	c.end()
	for _, bye := range byes {
		bye.end()
	}
	for _, bye := range byes {
		bye.tell()
	}
	end := driver.Now().Add(releaseBudget)
	c.work.Wait()
	err := c.settleDebts(end)
	c.mu.Lock()
	c.stopped = true
	c.keeper.timer.Stop()
	for _, ln := range c.lines {
		if ln.turnTimer != nil {
			ln.turnTimer.Stop()
		}
	}
	c.mu.Unlock()
	c.timeouts.end() // of what the store still owes an answer to
	c.keeping.Wait()
	if c.committer != nil {
		c.committer.wg.Wait()
	}
	if err != nil {
		c.log.Warn("holdfast: closed with releases open", "store", c.props.Store, "error", err)
	}
	if cerr := c.store.Close(); cerr != nil {
		err = errors.Join(err, c.errorf("close", "", kindError(c.store.Classify(cerr)), cerr))
	}
	return err
}

// closeHolds ends all holds: their releases become debts; under mu.
func (c *Client) closeHolds() (byes []*farewell) {
	for _, h := range c.holds {
		if h.lapsed() { // somebody may have seen it lost
			byes = append(byes, c.expire(h))
			continue
		}
		byes = append(byes, c.bid(h.leases, c.errorf("hold", h.line.name.Full, ErrReleased, ErrClosed), 0))
		req := driver.ReleaseRequest{Ref: h.ref()}
		if kept := h.granted.Add(h.ask.minHold); h.ask.minHold > 0 && kept.Until() > 0 && h.revoked == nil {
			if c.props.Bound == driver.ByConnection {
				if h.lingerUntil == 0 {
					c.linger(h, kept)
				}
				continue
			}
			req.Keep = kept.Until()
		}
		h.retire()
		if !c.opts.LeaveOnClose {
			c.owe(&debt{req: req})
		}
	}
	return byes
}

// settleDebts waits until no hold lingers and the store has answered all debts.
// The store has until end for that, or 5 s after the last hold; then it says what
// may remain. Attempts that were undone, but may arrive yet, are not waited for.
func (c *Client) settleDebts(end driver.Instant) error {
	for lingered := false; ; {
		c.mu.Lock()
		lingers := c.lingering > 0
		unanswered, late := c.openDebts()
		c.mu.Unlock()
		now := driver.Now()
		if lingers || lingered {
			end = now.Add(releaseBudget)
		}
		switch lingered = lingers; {
		case lingers:
		case len(unanswered) == 0, now >= end:
			if len(late) > 0 {
				c.log.Info("holdfast: closed while attempts that were undone may yet arrive", "store", c.props.Store, "names", distinct(late))
			}
			return c.mayRemain(unanswered)
		}
		timer := time.NewTimer(max(0, end.Until()))
		select {
		case <-c.settling:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// openDebts are the names of which the store has answered no release yet, and of
// attempts that are still released again and again; under mu.
func (c *Client) openDebts() (unanswered, late []string) {
	for d := range c.debts {
		if name := strconv.Quote(d.req.Name.Full); d.answered == 0 {
			unanswered = append(unanswered, name)
		} else {
			late = append(late, name)
		}
	}
	return unanswered, late
}

func (c *Client) mayRemain(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return c.errorf("close", "", ErrUnavailable, errors.New("the store did not answer: may remain until it expires: "+distinct(names)))
}

// distinct lists names, each once, as many as a person will read.
func distinct(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 20
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(names, ", ")
}

// paid wakes settleDebts; under mu.
func (c *Client) paid() {
	select {
	case c.settling <- struct{}{}:
	default:
	}
}
