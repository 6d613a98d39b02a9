package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast"
)

// waitTeller tells who is waited for: on a terminal each second, on one line;
// elsewhere once, when the wait has become long.
type waitTeller struct {
	a           *app
	name, label string

	mu    sync.Mutex
	ended bool
	shown bool // a line is on the terminal

	toldDown time.Time // that the store is not there was told last
}

const showEvery = time.Second

// start begins to tell of a wait. stop ends it, and wipes the line; then it may
// start again.
func (w *waitTeller) start(client *holdfast.Client) (stop func()) {
	if w.a.quiet || w.a.json || !isTerminal(w.a.stderr) {
		return func() {}
	}
	w.mu.Lock()
	w.ended = false
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.tell(ctx, client)
	}()
	return func() {
		cancel()
		<-stopped
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = true
		w.wipe()
	}
}

func (w *waitTeller) tell(ctx context.Context, client *holdfast.Client) {
	began := time.Now()
	ticker := time.NewTicker(showEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		record, err := client.Inspect(ctx, w.name)
		if ctx.Err() != nil {
			return
		}
		w.show(waitLine(w.name, w.label, &record, err, time.Since(began)))
	}
}

// waitLine says what is waited for. Those ahead are the waiters before us, of
// whom the label tells which we are.
func waitLine(name, label string, r *holdfast.Record, err error, waited time.Duration) string {
	text := fmt.Sprintf("waiting %s for %s", short(waited), printable(name))
	if err != nil {
		return text
	}
	if len(r.Holders) > 0 {
		h := &r.Holders[0]
		text += ": held by " + printable(h.Label) + " for " + short(h.Held)
		if more := len(r.Holders) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	if r.Waiters == nil {
		return text
	}
	ahead := len(r.Waiters)
	for i := range r.Waiters {
		if r.Waiters[i].Label == label {
			ahead = i
			break
		}
	}
	return text + fmt.Sprintf(", %d ahead", ahead)
}

func (w *waitTeller) show(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.wipe()
	if runes := []rune(line); len(runes) >= columns(w.a.stderr) {
		line = string(runes[:columns(w.a.stderr)-1])
	}
	fmt.Fprint(w.a.stderr, line)
	w.shown = true
}

func (w *waitTeller) wipe() {
	if w.shown {
		fmt.Fprint(w.a.stderr, "\r\x1b[K")
	}
	w.shown = false
}

// silent tells that the store does not answer, and calls the wait off when that
// has gone on for too long.
func (w *waitTeller) silent(e *holdfast.Event, giveUp context.CancelCauseFunc) {
	if e.Took >= storePatience {
		giveUp(fmt.Errorf("%w for %v: %w", errStoreSilent, short(e.Took), e.Err))
		return
	}
	w.down(e)
}

// down tells that the store is not there, once of each outage.
func (w *waitTeller) down(e *holdfast.Event) {
	cause := e.Err
	if typed, ok := errors.AsType[*holdfast.Error](e.Err); ok && typed.Err != nil {
		cause = typed.Err // without the library's frame
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || time.Now().Add(-e.Took).Before(w.toldDown) {
		return
	}
	w.toldDown = time.Now()
	w.wipe()
	w.a.say("store_down", fmt.Sprintf("waiting for the store, to lock %s: %s", printable(e.Name), printable(cause.Error())),
		map[string]any{"name": e.Name, "error": cause.Error()})
}

// long tells of a long wait where no terminal shows it; queue: how many are
// ahead is known.
func (w *waitTeller) long(e *holdfast.Event, queue bool) {
	if isTerminal(w.a.stderr) && !w.a.json {
		return
	}
	text := fmt.Sprintf("still waiting for %s after %s", printable(e.Name), short(e.Took))
	fields := map[string]any{"name": e.Name, "waited_ms": e.Took.Milliseconds()}
	if queue {
		fields["ahead"] = e.Ahead
	}
	if e.Holder != nil {
		text += ": held by " + describeHolder(e.Holder)
		fields["holder"] = newHolderJSON(e.Holder)
	}
	if queue && e.Ahead > 0 {
		text += fmt.Sprintf("; %d ahead", e.Ahead)
	}
	w.a.say("waiting", text, fields)
}

func isTerminal(f *os.File) bool {
	var t syscall.Termios
	return ioctl(f, syscall.TCGETS, unsafe.Pointer(&t))
}

// columns is the width of a terminal.
func columns(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	if !ioctl(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) || size.columns < 2 {
		return 80
	}
	return int(size.columns)
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) bool {
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg))
	return e == 0
}
