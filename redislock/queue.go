package redislock

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	results := make([]driver.BeatResult, len(places))
	keys, args := make([]string, 0, 2*len(places)), make([]string, 0, len(places))
	for i := range places {
		tag := tagOf(places[i].Name.Key)
		keys = append(keys, recordKey(tag, places[i].Name.Key), bucketKey(tag))
		args = append(args, ownerText(&places[i].Owner))
	}
	texts, err := s.answers(ctx, beatScript, len(places), keys, args)
	for i := range places {
		if results[i].Err = err; err != nil {
			continue
		}
		results[i] = readBeat(texts[i].Text)
	}
	return results
}

// readBeat reads "G token ms", "W" and what look tells, or "X".
func readBeat(text string) (res driver.BeatResult) {
	switch kind, rest := cutKind(text); kind {
	case 'G':
		res.Status = driver.Granted
		res.Grant, res.Err = readGrant(rest, 0)
	case 'W':
		res.Status = driver.Waiting
		res.Queue, res.Err = readQueue(rest)
	case 'X':
		res.Status = driver.Gone
	default:
		res.Err = strange(text)
	}
	return res
}

func (s *store) Listen(deliver func(driver.Signal)) { s.ears.deliver = deliver }

// ears hear what the server tells this client: one subscription, made when the
// first place is asked for and made anew for as long as the store is open.
type ears struct {
	s       *store
	deliver func(driver.Signal)
	life    context.Context
	end     context.CancelFunc
	start   sync.Once
	tried   chan struct{} // closed when the first subscription stands or has failed
	first   sync.Once
	wg      sync.WaitGroup
}

// The pauses between subscriptions that fail.
const (
	deafFirst   = 20 * time.Millisecond
	deafLongest = time.Second
)

func (e *ears) init(s *store) {
	e.s, e.tried = s, make(chan struct{})
	e.life, e.end = context.WithCancel(context.Background())
}

// listening tells whether the subscription stands, or is being made anew and a
// MissedSignal will follow.
func (e *ears) listening() bool {
	select {
	case <-e.tried:
		return true
	default:
		return false
	}
}

// open makes the subscription, and returns when it stands. If it cannot be made
// for now, beats do without it.
func (e *ears) open(ctx context.Context) {
	e.start.Do(func() { e.wg.Go(e.listen) })
	select {
	case <-e.tried:
	case <-ctx.Done():
	}
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

func (e *ears) listen() {
	defer e.settle()
	pause := deafFirst
	heard := false
	for e.life.Err() == nil {
		ready := func() {
			if pause = deafFirst; heard {
				e.tell(driver.Signal{Kind: driver.MissedSignal})
			}
			heard = true
			e.settle()
		}
		_ = e.s.link.Subscribe(e.life, channelOf(e.s.id), false, ready, e.hear) // made anew, whatever it was
		e.settle()
		heard = true // whatever comes now may have come before
		timer := time.NewTimer(pause)
		pause = min(2*pause, deafLongest)
		select {
		case <-timer.C:
		case <-e.life.Done():
			timer.Stop()
		}
	}
}

func (e *ears) settle() { e.first.Do(func() { close(e.tried) }) }

// hear takes one message: "g owner token ms" a grant, "b owner reason" a break,
// "l owner reason" a break by force.
func (e *ears) hear(message string) {
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
	case "b":
		sig.Kind, sig.Reason = driver.BrokenSignal, f[2]
	case "l":
		sig.Kind, sig.Reason = driver.LostSignal, "broken by force: "+f[2]
	default:
		return
	}
	e.tell(sig)
}

func (e *ears) tell(sig driver.Signal) {
	if e.deliver != nil && e.life.Err() == nil {
		e.deliver(sig)
	}
}
