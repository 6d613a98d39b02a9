package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// clocks watch whether a server's clock steps, while the client uses leases:
// leases live by that clock. They warn and decide nothing.
type clocks struct {
	mu       sync.Mutex
	due      driver.Instant
	looking  bool
	of       map[string]reading // by the node's address
	warnings []string
}

// reading bounds what a server's clock was ahead of ours, which does not step.
type reading struct {
	at       driver.Instant
	from, to time.Duration
}

// Clocks are looked at so often; one step is a difference that neither the
// exchange nor clocks of unequal speed explain.
const (
	clockEvery = 10 * time.Second
	clockStep  = 500 * time.Millisecond
	clockDrift = 100 // 1 in 100
)

// seen notes the answer to a TIME that was sent and received then.
func (c *clocks) seen(node string, told Reply, sent, received driver.Instant) {
	server, ok := timeOf(told)
	if !ok {
		return
	}
	now := reading{at: received, from: server - asDuration(received), to: server - asDuration(sent)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = received.Add(clockEvery)
	before, known := c.of[node]
	c.of[node] = now
	slack := clockStep + received.Sub(before.at)/clockDrift
	switch {
	case !known:
	case now.from > before.to+slack:
		c.warn(node, "forward", now.from-before.to)
	case now.to < before.from-slack:
		c.warn(node, "back", before.from-now.to)
	}
}

func asDuration(i driver.Instant) time.Duration { return time.Duration(i) }

// timeOf reads the answer to TIME as a span since 1970.
func timeOf(r Reply) (time.Duration, bool) {
	if r.Err != nil || len(r.List) != 2 {
		return 0, false
	}
	d, err := time.ParseDuration(r.List[0].Text + "s" + r.List[1].Text + "us")
	return d, err == nil
}

func (c *clocks) warn(node, where string, by time.Duration) {
	text := fmt.Sprintf("the server's clock was set %s by %v: leases ended early, or late", where, by.Round(100*time.Millisecond))
	if node != "" {
		text = node + ": " + text
	}
	if len(c.warnings) < 100 {
		c.warnings = append(c.warnings, text)
	}
}

// told are the warnings so far.
func (c *clocks) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.warnings)
}

// begin tells whether it is time to look again, and if so that nobody else does.
func (c *clocks) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking || driver.Now() < c.due {
		return false
	}
	c.looking = true
	return true
}

func (c *clocks) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking, c.due = false, max(c.due, driver.Now().Add(clockEvery))
}

// lookAtClocks asks every server for its time, if it is time to; beside the call
// that it is made in.
func (s *store) lookAtClocks() {
	if !s.clocks.begin() {
		return
	}
	s.ears.wg.Go(func() {
		defer s.clocks.end()
		ctx, cancel := context.WithTimeout(s.ears.life, setUp)
		defer cancel()
		_ = s.LookAgain(ctx) // the calls tell
	})
}

// LookAgain implements [driver.Looker], for the clocks.
func (s *store) LookAgain(ctx context.Context) error {
	masters, err := prompt(ctx, &s.hands, s.link.Masters)
	errs := []error{err}
	for _, node := range masters {
		sent := driver.Now()
		reply, err := prompt(ctx, &s.hands, func(ctx context.Context) (Reply, error) { return node.Do(ctx, command("TIME"))[0], nil })
		if err == nil {
			s.clocks.seen(node.Addr(), reply, sent, driver.Now())
		}
		errs = append(errs, err, reply.Err)
	}
	return errors.Join(errs...)
}
