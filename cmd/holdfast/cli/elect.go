package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The pause before a leader whose command failed is a candidate again: it
// doubles from the first to the second, half of it by chance.
const (
	electFirstPause   = time.Second
	electLongestPause = 30 * time.Second
)

func (a *app) electMain(args []string) int {
	return a.parsed(&runOptions{onLost: lossTerm, grace: defaultGrace, elect: true}, args)
}

// defineElect makes the flags of holdfast elect: those of run that make sense for
// a leader, who is alone, waits for ever, and never goes on beside the next one.
func (o *runOptions) defineElect(f *flags) {
	f.common(&o.common)
	o.lock.defineLease(f)
	f.value("value", "what the leader says of itself, such as its address (`text`); show prints it", func(s string) error {
		o.value = s
		if len(s) > driver.MaxValue || !utf8.ValidString(s) || containsControl(s) {
			return fmt.Errorf("must be UTF-8 of at most %d bytes, without control characters", driver.MaxValue)
		}
		return nil
	})
	f.value("on-lost", "`term|kill`: how the command is ended when the term is lost; default term", func(s string) (err error) {
		if o.onLost, err = parseLossPolicy(s); err == nil && !o.onLost.kill {
			err = errors.New("must be term or kill: a leader may not go on beside the next one")
		}
		return err
	})
	f.span(&o.grace, "grace", "`time` from TERM to KILL; default 10s")
	f.span(&o.jitter, "jitter", "first wait a random part of this `time`")
	f.BoolVar(&o.shell, "shell", false, "run COMMAND as a line of sh")
}

func containsControl(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}

// candidate is holdfast elect between its terms.
type candidate struct {
	a        *app
	o        *runOptions
	prog     program
	signals  *signals
	client   *holdfast.Client
	election *holdfast.Election
	at       place
	renews   chan struct{}
	wait     *waitTeller // of every campaign: it knows of which outage it told
	failures int         // in a row
}

// elect campaigns, runs the command while it leads, and campaigns again, until the
// command ends by itself with status 0, cannot be run, or a signal ended it.
func (a *app) elect(o *runOptions, prog program, signals *signals) int {
	c := &candidate{a: a, o: o, prog: prog, signals: signals, renews: make(chan struct{}, 1)}
	if err := c.open(); err != nil {
		return a.refused(o, err)
	}
	defer func() { _ = c.client.Close() }() // every term has been resigned
	for {
		code, over := c.serve()
		if !over {
			code, over = c.rest()
		}
		if over {
			return code
		}
	}
}

func (c *candidate) open() error {
	ctx, done := c.signals.context()
	defer done()
	c.wait = &waitTeller{a: c.a, name: c.o.name, label: c.o.lock.label}
	client, at, err := c.a.open(ctx, &c.o.common, holdfast.Options{TTL: c.o.lock.ttl, Observe: func(_ context.Context, e holdfast.Event) {
		switch e.Kind {
		case holdfast.EventRenewed:
			select {
			case c.renews <- struct{}{}:
			default:
			}
		case holdfast.EventStoreDown:
			c.wait.down(&e)
		default:
		}
	}})
	if err != nil {
		return calledOff(ctx, err)
	}
	c.client, c.at = client, at
	c.election = client.Election(c.o.name).With(holdfast.ElectionOptions{Label: c.o.lock.label})
	c.a.warnOf(client)
	return nil
}

// campaign waits for a term. Unlike run, it goes on while the store is away.
func (c *candidate) campaign() (*held, error) {
	ctx, done := c.signals.context()
	defer done()
	stop := c.wait.start(c.client)
	term, err := c.election.Campaign(ctx, c.o.value)
	stop()
	if err != nil {
		return nil, explain(c.client, c.o.name, calledOff(ctx, err))
	}
	h := &held{a: c.a, client: c.client, lease: term.Lease, at: c.at, renews: c.renews, granted: time.Now()}
	if err := h.prepare(c.o); err != nil {
		_ = term.Resign(ctx) // the store frees it in the end
		return nil, err
	}
	return h, nil
}

// serve leads once. over says that the command is not to run again.
func (c *candidate) serve() (code int, over bool) {
	h, err := c.campaign()
	if err != nil {
		return c.a.refused(c.o, err), true
	}
	defer c.resign(h)
	g := <-c.a.startGuard(c.prog)
	if g.err != nil {
		c.a.report("error", "the guard cannot be started: "+g.err.Error(), map[string]any{"exit": exitInternal})
		return exitInternal, true
	}
	token := strconv.FormatUint(h.lease.Token(), 10)
	c.a.say("elected", "leading "+printable(c.o.name)+", token "+token, map[string]any{"name": c.o.name, "token": token})
	s := &supervisor{a: c.a, o: c.o, conn: g.conn, held: h, signals: c.signals, prog: c.prog}
	code = s.supervise()
	switch {
	case s.lost:
		c.failures = 0
		return code, s.asked
	case code == 0 || s.failed != 0 || s.asked || s.endedBy != 0 && code == exitSignal+int(s.endedBy):
		return code, true
	case time.Since(h.granted) >= electLongestPause:
		c.failures = 0
	}
	c.failures++
	return code, false
}

// resign ends the term, in which nothing runs any more.
func (c *candidate) resign(h *held) {
	h.closeLocks()
	if err := h.lease.Release(context.Background()); err != nil && !errors.Is(err, holdfast.ErrLost) {
		c.a.report("release", "the name may stay taken until its TTL is over: "+printable(err.Error()), nil)
	}
}

// rest pauses before the next campaign. over says that a signal came.
func (c *candidate) rest() (code int, over bool) {
	ctx, done := c.signals.context()
	defer done()
	pause := electFirstPause
	for range min(c.failures-1, 8) {
		pause = min(2*pause, electLongestPause)
	}
	pause = pause/2 + rand.N(pause/2)
	why := "the term was lost"
	if c.failures > 0 {
		why = "the command failed"
	}
	c.a.say("resigned", why+"; a candidate again in "+short(pause), map[string]any{"name": c.o.name, "pause_ms": pause.Milliseconds()})
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, false
	case <-ctx.Done():
		return c.a.interrupted(ctx, " before the next campaign"), true
	}
}

// dying tells whether a signal may be meant to end the whole.
func dying(sig syscall.Signal) bool { return sig == syscall.SIGHUP || sig == syscall.SIGQUIT }
