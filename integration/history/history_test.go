package history_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/history"
)

// A script is a history by hand: each step is one event, a second after the
// one before.
type script struct {
	at     int64
	events []history.Event
	client map[uint64]int
}

func (s *script) add(e history.Event) {
	s.at += int64(time.Second)
	e.At, e.Proc = s.at, "p"
	if e.Op != 0 {
		e.Client = s.client[e.Op]
	}
	s.events = append(s.events, e)
}

func (s *script) call(op uint64, mode string, n int) {
	limit := 0
	if n > 0 {
		limit = 3
	}
	s.client[op] = int(op) //nolint:gosec // small
	s.add(history.Event{Kind: history.Acquire, Op: op, Name: "x", Mode: mode, N: n, Limit: limit})
}

func (s *script) granted(op, token uint64) {
	s.add(history.Event{Kind: history.Granted, Op: op, Token: token})
}

// get is an acquire that nothing comes between.
func (s *script) get(op uint64, mode string, n int, token uint64) {
	s.call(op, mode, n)
	s.granted(op, token)
}

func (s *script) free(op uint64) {
	s.add(history.Event{Kind: history.Release, Op: op})
	s.add(history.Event{Kind: history.Released, Op: op, OK: true})
}

func (s *script) share(op, root, token uint64) {
	s.call(op, history.Exclusive, 0)
	s.add(history.Event{Kind: history.Granted, Op: op, Token: token, Root: root})
}

const w, r, p = history.Exclusive, history.Shared, history.Permits

// Each bad history is one that a checker must not let pass. want names the
// checks that have to see it: an empty one says that the history is good.
var scripts = []struct {
	name string
	want []string
	play func(s *script)
}{
	{"in turn", nil, func(s *script) { s.get(1, w, 0, 10); s.free(1); s.get(2, w, 0, 11); s.free(2) }},
	{"two writers", []string{"belief", "model"}, func(s *script) { s.get(1, w, 0, 10); s.get(2, w, 0, 11); s.free(1); s.free(2) }},
	{"two readers", nil, func(s *script) { s.get(1, r, 0, 10); s.get(2, r, 0, 11); s.free(1); s.free(2) }},
	{"reader and writer", []string{"belief", "model"}, func(s *script) { s.get(1, r, 0, 10); s.get(2, w, 0, 11); s.free(1); s.free(2) }},
	{"permits that fit", nil, func(s *script) { s.get(1, p, 2, 10); s.get(2, p, 1, 11); s.free(2); s.free(1) }},
	{"permits over the limit", []string{"belief", "model"}, func(s *script) { s.get(1, p, 2, 10); s.get(2, p, 2, 11); s.free(2); s.free(1) }},
	{"permits beside a lock", []string{"model"}, func(s *script) { s.get(1, p, 2, 10); s.get(2, r, 0, 11); s.free(2); s.free(1) }},
	{"token falls", []string{"token", "model"}, func(s *script) { s.get(1, w, 0, 11); s.free(1); s.get(2, w, 0, 10); s.free(2) }},
	{"token of a reader falls", []string{"token"}, func(s *script) { s.get(1, r, 0, 11); s.get(2, r, 0, 10); s.free(1); s.free(2) }},
	{"tokens of calls that overlap", nil, func(s *script) { s.call(1, r, 0); s.get(2, r, 0, 11); s.granted(1, 10); s.free(1); s.free(2) }},
	{"token twice", []string{"token"}, func(s *script) { s.call(1, r, 0); s.get(2, r, 0, 10); s.granted(1, 10); s.free(1); s.free(2) }},
	{"no tokens", nil, func(s *script) { s.get(1, w, 0, 0); s.free(1); s.get(2, w, 0, 0); s.free(2) }},
	{"reentrant", nil, func(s *script) {
		s.get(1, w, 0, 10)
		s.share(2, 1, 10)
		s.free(1)
		s.free(2)
		s.get(3, w, 0, 11)
		s.free(3)
	}},
	{"reentrant, another token", []string{"token"}, func(s *script) { s.get(1, w, 0, 10); s.share(2, 1, 11); s.free(2); s.free(1) }},
	{"freed by the outer release", []string{"belief", "model"}, func(s *script) { s.get(1, w, 0, 10); s.share(2, 1, 10); s.free(1); s.get(3, w, 0, 11); s.free(2) }},
	{"granted during the release", nil, func(s *script) {
		s.get(1, w, 0, 10)
		s.call(2, w, 0)
		s.add(history.Event{Kind: history.Release, Op: 1})
		s.granted(2, 11)
		s.add(history.Event{Kind: history.Released, Op: 1, OK: true})
		s.free(2)
	}},
	{"granted before the release", []string{"belief", "model"}, func(s *script) {
		s.get(1, w, 0, 10)
		s.call(2, w, 0)
		s.granted(2, 11)
		s.free(1)
		s.free(2)
	}},
	{"release of unknown outcome", nil, func(s *script) {
		s.get(1, w, 0, 10)
		s.add(history.Event{Kind: history.Release, Op: 1})
		s.add(history.Event{Kind: history.Released, Op: 1, Err: "outcome unknown"})
		s.get(2, w, 0, 11)
		s.free(2)
	}},
	{"lost, then granted", nil, func(s *script) { s.get(1, w, 0, 10); s.lose(1); s.get(2, w, 0, 11); s.free(2) }},
	{"granted, then lost", []string{"belief", "model"}, func(s *script) { s.get(1, w, 0, 10); s.get(2, w, 0, 11); s.lose(1); s.free(2) }},
	{"deadline before the grant", nil, func(s *script) {
		s.get(1, w, 0, 10)
		s.deadline(1, 1500*time.Millisecond)
		s.get(2, w, 0, 11)
		s.free(1)
	}},
	{"deadline after the grant", []string{"belief", "model"}, func(s *script) { s.get(1, w, 0, 10); s.deadline(1, time.Hour); s.get(2, w, 0, 11); s.free(1) }},
	{"stopped before it could say so", nil, func(s *script) {
		s.call(1, r, 0)
		s.get(2, w, 0, 11)
		s.free(2)
		s.add(history.Event{Kind: history.Granted, Op: 1, Token: 10, Deadline: s.at - int64(3*time.Second)})
		s.free(1)
	}},
	{"killed", nil, func(s *script) {
		s.get(1, w, 0, 10)
		s.add(history.Event{Kind: history.Killed})
		s.get(2, w, 0, 11)
		s.free(2)
	}},
	{"killed while it asked", nil, func(s *script) {
		s.call(1, w, 0)
		s.add(history.Event{Kind: history.Killed})
		s.get(2, w, 0, 11)
		s.free(2)
	}},
	{"closed", nil, func(s *script) {
		s.get(1, w, 0, 10)
		s.add(history.Event{Kind: history.Closing, Client: 1})
		s.get(2, w, 0, 11)
		s.free(2)
	}},
	{"another client closed", []string{"belief", "model"}, func(s *script) {
		s.get(1, w, 0, 10)
		s.events = append(s.events, history.Event{At: s.at + 1, Kind: history.Closing, Proc: "p", Client: 7})
		s.get(2, w, 0, 11)
		s.free(2)
	}},
	{"broken by force", nil, func(s *script) { s.get(1, w, 0, 2560); s.force(2560); s.get(2, w, 0, 2816); s.free(1); s.free(2) }},
	{"another broken by force", []string{"belief", "model"}, func(s *script) { s.get(1, w, 0, 2560); s.force(2304); s.get(2, w, 0, 2816); s.free(1); s.free(2) }},
	{"passed on after a break by force", nil, func(s *script) {
		s.get(1, w, 0, 2560)
		s.force(2560)
		s.get(2, w, 0, 2816)
		s.get(3, w, 0, 2561)
		s.free(1)
		s.free(2)
	}},
}

func (s *script) lose(op uint64) { s.add(history.Event{Kind: history.Lost, Op: op, Err: "lease lost"}) }

func (s *script) deadline(op uint64, in time.Duration) {
	s.add(history.Event{Kind: history.Held, Op: op, Deadline: s.at + int64(in)})
}

func (s *script) force(token uint64) {
	s.add(history.Event{Kind: history.Break, Name: "x", Token: token})
}

func TestCheckers(t *testing.T) {
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			s := &script{client: map[uint64]int{}}
			c.play(s)
			h, err := history.New(s.events)
			if err != nil {
				t.Fatal(err)
			}
			for name, err := range map[string]error{"belief": h.Beliefs(), "token": h.Tokens(), "model": h.Model(10 * time.Second)} {
				wanted := strings.Contains(strings.Join(c.want, " "), name)
				if wanted != (err != nil) {
					t.Errorf("%s: want a violation: %v, got: %v", name, wanted, err)
				}
				removePicture(t, err)
			}
		})
	}
}

func TestUndecidedFails(t *testing.T) {
	s := &script{client: map[uint64]int{}}
	s.get(1, w, 0, 10)
	s.free(1)
	h, err := history.New(s.events)
	if err != nil {
		t.Fatal(err)
	}
	err = h.Model(time.Nanosecond)
	removePicture(t, err)
	// A fast machine may decide even so: then there is nothing to see.
	if err != nil && !strings.Contains(err.Error(), "undecided") {
		t.Error(err)
	}
}

// The page of a failure must be there, and show the history.
func removePicture(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "model:") {
		return
	}
	path := regexp.MustCompile(`see (.*\.html)`).FindStringSubmatch(err.Error())
	if path == nil {
		t.Fatalf("no page named in: %v", err)
	}
	page, rerr := os.ReadFile(path[1])
	if rerr != nil || !strings.Contains(string(page), "grant of") {
		t.Errorf("the page: %v", rerr)
	}
	_ = os.Remove(filepath.Clean(path[1]))
}
