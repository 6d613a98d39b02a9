package redislock

import (
	"context"
	"crypto/sha1" //nolint:gosec // by which Redis names scripts
	"embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is one verb on the server. Text and sha are there once a store is.
type script struct{ verb, text, sha string }

// The verbs.
var (
	acquireScript = &script{verb: "acquire"}
	releaseScript = &script{verb: "release"}
	renewScript   = &script{verb: "renew"}
	beatScript    = &script{verb: "beat"}
	breakScript   = &script{verb: "break"}
	inspectScript = &script{verb: "inspect"}
	valueScript   = &script{verb: "value"}

	scripts = []*script{acquireScript, releaseScript, renewScript, beatScript, breakScript, inspectScript, valueScript}
)

// loadScripts puts the verbs together from their files and those that they
// include, which are part of the program. A program that opens no store does not pay for it.
var loadScripts = sync.OnceFunc(func() {
	for _, sc := range scripts {
		sc.text = include(sc.verb + ".lua")
		sum := sha1.Sum([]byte(sc.text)) //nolint:gosec // as above
		sc.sha = hex.EncodeToString(sum[:])
	}
})

func include(file string) string {
	source, err := scriptFiles.ReadFile("scripts/" + file)
	if err != nil {
		return "error('no script " + file + "')"
	}
	var b strings.Builder
	for line := range strings.Lines(string(source)) {
		if other, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
			b.WriteString(include(other))
		} else {
			b.WriteString(line)
		}
	}
	return b.String()
}

// answers runs a script that answers each of n requests. The first of keys decides the node.
func (s *store) answers(ctx context.Context, sc *script, n int, keys, args []string) ([]Reply, error) {
	return s.answersTo(ctx, sc, n, scriptCall(sc, keys, args))
}

func scriptCall(sc *script, keys, args []string) []string {
	words := make([]string, 0, 3+len(keys)+len(args))
	return append(append(append(words, "EVALSHA", sc.sha, strconv.Itoa(len(keys))), keys...), args...)
}

// answersTo is answers for a call that is put together already.
func (s *store) answersTo(ctx context.Context, sc *script, n int, call []string) ([]Reply, error) {
	replies, err := s.run(ctx, sc, call, s.send)
	if err != nil {
		return nil, err
	}
	if replies[0].List != nil {
		replies = replies[0].List
	} else { // of one
		replies = replies[:1]
	}
	if len(replies) != n {
		return nil, errStrangeAnswer
	}
	return replies, nil
}

// errStrangeAnswer is of a script that may have done its work.
var errStrangeAnswer = errors.New("redis: a script of ours gave a strange answer")

// sender sends commands in one flush. Its error means that none is answered; each
// reply may have one of its own.
type sender func(ctx context.Context, commands ...Command) ([]Reply, error)

// run sends a script once, and what else the sender sends with it. If the server does not know it
// (surely nothing was done then) it goes again with its text. The error is the script's.
func (s *store) run(ctx context.Context, sc *script, words []string, send sender) ([]Reply, error) {
	eval := Command{Words: words, Key: 3}
	replies, err := send(ctx, eval)
	if err == nil && unknownScript(replies[0].Err) {
		words[0], words[1] = "EVAL", sc.text
		replies, err = send(ctx, eval)
	}
	if err == nil {
		err = replies[0].Err
	}
	return replies, err
}

// send is the usual sender.
func (s *store) send(ctx context.Context, commands ...Command) ([]Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	if s.prompter == nil {
		return s.sendAside(ctx, commands...)
	}
	own, ok := s.prompter.Prompt(ctx)
	if !ok {
		return s.sendAside(ctx, commands...)
	}
	replies := s.do(own, commands)
	if ended := ctx.Err(); ended != nil && replies[0].Err != nil {
		if _, told := replies[0].Err.(*driver.Failure); !told { //nolint:errorlint // a Link gives it bare
			return nil, ended
		}
	}
	return replies, nil
}

// sendAside is send from another goroutine.
func (s *store) sendAside(ctx context.Context, commands ...Command) ([]Reply, error) {
	return prompt(ctx, &s.hands, func(ctx context.Context) ([]Reply, error) {
		return s.do(ctx, commands), nil
	})
}

// do is what all answers come by, also those that nobody waits for any more.
func (s *store) do(ctx context.Context, commands []Command) []Reply {
	replies := s.link.Do(ctx, commands...)
	s.bare.hear(replies)
	return replies
}

// prompt returns as soon as ctx ends, which the client does not do while it
// dials, or while it reads for itself alone. What was not sent by then is not sent
// later.
func prompt[A any](ctx context.Context, h *hands, call func(context.Context) (A, error)) (A, error) {
	if ctx.Done() == nil {
		return call(ctx)
	}
	type answer struct {
		value A
		err   error
	}
	done := make(chan answer, 1)
	h.do(func() {
		value, err := call(quiet{ctx})
		done <- answer{value, err}
	})
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// quiet hides from the client when ctx will end, as it would end the whole
// connection with it, and others' calls on it. That ctx has ended it may see.
type quiet struct{ context.Context }

func (quiet) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (quiet) Done() <-chan struct{}                   { return nil }

// hands are goroutines that wait for the client in place of the callers. A few
// are kept, as a new one costs more than the call: its stack has to grow.
type hands struct {
	jobs chan func()
	end  chan struct{}
	idle atomic.Int32
	once sync.Once
}

// idleHands is how many are kept. Callers beyond them travel together, so there
// are never many.
const idleHands = 8

func (h *hands) init() { h.jobs, h.end = make(chan func()), make(chan struct{}) }

func (h *hands) close() { h.once.Do(func() { close(h.end) }) }

func (h *hands) do(job func()) {
	select {
	case h.jobs <- job:
	default:
		go h.work(job)
	}
}

func (h *hands) work(job func()) {
	for {
		job()
		if h.idle.Add(1) > idleHands {
			h.idle.Add(-1)
			return
		}
		select {
		case job = <-h.jobs:
			h.idle.Add(-1)
		case <-h.end:
			return
		}
	}
}
