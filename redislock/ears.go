package redislock

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ears hear what the servers tell this client: an ear for each channel. There is
// one channel for all; but in a cluster that can keep messages on their node
// (Redis 7, Valkey) each bucket has its own.
type ears struct {
	s       *store
	deliver func(driver.Signal)
	life    context.Context
	end     context.CancelFunc
	wg      sync.WaitGroup

	mu  sync.Mutex
	all map[string]*ear // by channel
}

// ear is one subscription, made when the first place is asked for and made
// anew for as long as the store is open; one for a bucket, while it is used.
type ear struct {
	*ears
	channel string
	life    context.Context
	end     context.CancelFunc
	start   sync.Once
	first   sync.Once
	tried   chan struct{} // closed when the first subscription stands or has failed
	stands  atomic.Bool
	heard   atomic.Bool  // it stood before: whatever comes now may have come before
	used    atomic.Int64 // a driver.Instant
}

// The pauses between subscriptions that fail; the last is for servers that know
// no such thing, or forbid it.
const (
	deafFirst   = 20 * time.Millisecond
	deafLongest = time.Second
	deafForGood = 30 * time.Second
)

// While nothing is heard, places beat in this rhythm, the first ones faster.
const (
	deafBeat     = 100 * time.Millisecond
	deafSlowBeat = time.Second
)

// idleEar is how long a subscription for a bucket is kept after its last use.
const idleEar = time.Minute

func (e *ears) init(s *store) {
	e.s, e.all = s, map[string]*ear{}
	e.life, e.end = context.WithCancel(context.Background())
}

// of is the ear for a bucket. It need not listen yet.
func (e *ears) of(tag string) *ear {
	channel := e.s.channel(tag)
	e.mu.Lock()
	defer e.mu.Unlock()
	one := e.all[channel]
	if one == nil {
		one = &ear{ears: e, channel: channel, tried: make(chan struct{})}
		one.life, one.end = context.WithCancel(e.life)
		e.all[channel] = one
	}
	if e.s.sharded {
		one.used.Store(int64(driver.Now()))
	}
	return one
}

// close does not wait for a client that hangs while it dials.
func (e *ears) close() {
	e.end()
	done := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

func (e *ears) tell(sig driver.Signal) {
	if e.deliver != nil && e.life.Err() == nil {
		e.deliver(sig)
	}
}

// listening tells whether the subscription stands, or is being made anew and a
// MissedSignal will follow.
func (e *ear) listening() bool {
	select {
	case <-e.tried:
		return true
	default:
		return false
	}
}

// open makes the subscription, and returns when it stands. If it cannot be made
// for now, beats do without it.
func (e *ear) open(ctx context.Context) {
	e.start.Do(func() {
		e.wg.Go(e.listen)
		if e.s.sharded {
			e.wg.Go(e.rest)
		}
	})
	select {
	case <-e.tried:
	case <-ctx.Done():
	}
}

// plan asks for beats in a rhythm of their own while nothing is heard.
func (e *ear) plan(q *driver.Queue) {
	if !e.stands.Load() {
		q.Again = min(deafBeat*time.Duration(1+q.Ahead), deafSlowBeat)
	}
}

func (e *ear) settle() { e.first.Do(func() { close(e.tried) }) }

func (e *ear) ready() {
	e.stands.Store(true)
	if e.heard.Swap(true) {
		e.tell(driver.Signal{Kind: driver.MissedSignal})
	}
	e.settle()
}

func (e *ear) listen() {
	defer e.settle()
	for pause := deafFirst; e.life.Err() == nil; {
		err := e.s.link.Subscribe(e.life, e.channel, e.s.sharded, e.ready, e.hear) // made anew, whatever it was
		if e.stands.Swap(false) {
			pause = deafFirst
		}
		e.heard.Store(true)
		e.settle()
		if kind := classify(err); err != nil && (kind == driver.Denied || kind == driver.Unsupported) {
			pause = deafForGood
		}
		timer := time.NewTimer(pause)
		pause = min(2*pause, deafLongest)
		select {
		case <-timer.C:
		case <-e.life.Done():
			timer.Stop()
		}
	}
}

// rest ends a subscription that nobody has needed for long.
func (e *ear) rest() {
	tick := time.NewTicker(idleEar / 2)
	defer tick.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-tick.C:
		}
		e.mu.Lock()
		idle := driver.Now().Sub(driver.Instant(e.used.Load())) > idleEar
		if idle {
			delete(e.all, e.channel)
		}
		e.mu.Unlock()
		if idle {
			e.end()
			return
		}
	}
}

// hear takes one message: "g owner token ms" a grant, "b owner reason" a break,
// "l owner reason" a break by force.
func (e *ear) hear(message string) {
	f := strings.SplitN(message, " ", 3)
	if len(f) < 3 || len(f[1]) != 2*len(driver.Owner{}) {
		return
	}
	var sig driver.Signal
	if _, err := hex.Decode(sig.Owner[:], []byte(f[1])); err != nil {
		return
	}
	switch f[0] {
	case "g":
		token, ms, _ := strings.Cut(f[2], " ")
		n, err1 := strconv.ParseUint(token, 10, 64)
		window, err2 := strconv.ParseInt(ms, 10, 64)
		if err1 != nil || err2 != nil {
			return
		}
		sig.Kind, sig.Grant = driver.GrantSignal, driver.Grant{Token: n, Window: time.Duration(window) * time.Millisecond}
		if e.s.wait > 0 { // it does not count yet
			e.s.confirmSignal(sig)
			return
		}
	case "b":
		sig.Kind, sig.Reason = driver.BrokenSignal, f[2]
	case "l":
		sig.Kind, sig.Reason = driver.LostSignal, byForce+f[2]
	default:
		return
	}
	e.tell(sig)
}
