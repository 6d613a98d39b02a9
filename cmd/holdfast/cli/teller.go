package cli

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/guard"
)

// teller writes the messages of a supervisor, which must never wait for whoever
// reads stderr: a pager, a terminal that was stopped, or a log reader that
// hangs would keep the command alive, and the name taken.
type teller struct {
	texts   chan text
	dropped atomic.Int64
	done    chan struct{}
}

// text is one message; quiet says that --quiet silences it.
type text struct {
	event, text string
	fields      map[string]any
	quiet       bool
}

// Of more messages than maxTexts that nobody reads, only the number is told.
// lastWords is how long the end waits for a reader who has hung, and
// slowWords while there is room to write: then it is only our own turn that has
// not come on a busy machine.
const (
	maxTexts  = 32
	lastWords = 100 * time.Millisecond
	slowWords = 2 * time.Second
)

// newTeller starts one. Its goroutine writes through a copy of a, so that end may
// change a while it hangs.
func newTeller(a *app) *teller {
	t := &teller{texts: make(chan text, maxTexts), done: make(chan struct{})}
	go t.write(*a)
	return t
}

func (t *teller) write(a app) {
	defer close(t.done)
	for m := range t.texts {
		if m.quiet {
			a.say(m.event, m.text, m.fields)
		} else {
			a.report(m.event, m.text, m.fields)
		}
		if n := t.dropped.Swap(0); n > 0 {
			a.report("dropped", strconv.FormatInt(n, 10)+" messages were dropped, as nobody read them", map[string]any{"count": n})
		}
	}
}

// say is [app.say], but does not wait.
func (t *teller) say(event, words string) {
	t.put(text{event, words, nil, true})
}

// report is [app.report], but does not wait.
func (t *teller) report(event, words string, fields map[string]any) {
	t.put(text{event, words, fields, false})
}

func (t *teller) put(m text) {
	select {
	case t.texts <- m:
	default:
		t.dropped.Add(1)
	}
}

// end waits a little until all is written. If nobody reads, what a would say after
// that is not written either: the release is yet to come, and must not wait.
func (t *teller) end(a *app) {
	close(t.texts)
	began, fd, written := time.Now(), a.stderr.Fd(), false
	select {
	case <-t.done:
	case <-time.After(lastWords):
	}
	for ; ; <-time.After(lastWords / 20) {
		select {
		case <-t.done:
			written = true
		default:
		}
		took, room := time.Since(began), guard.Writable(fd)
		switch {
		case written && room:
			return
		case took >= slowWords, took >= lastWords && !room:
			a.stderr = nil // writing to it fails, and nobody minds
			return
		}
	}
}
