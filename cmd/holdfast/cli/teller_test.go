package cli

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// clogged is a pipe that is full.
func clogged(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	fd := int(w.Fd())
	err = syscall.SetNonblock(fd, true)
	for line := []byte(strings.Repeat("x", 4095) + "\n"); err == nil; {
		_, err = syscall.Write(fd, line)
	}
	if err = syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return r, w
}

func TestTellerDropsAndCounts(t *testing.T) {
	r, w := clogged(t)
	a := &app{stderr: w}
	words := newTeller(a)
	for range 10 * maxTexts {
		words.say("event", "words") // would hang
	}
	heard := 0
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if lines.Text() == "holdfast: words" {
			heard++
		}
		if strings.HasSuffix(lines.Text(), "messages were dropped, as nobody read them") {
			break
		}
	}
	if heard == 0 || heard > maxTexts+1 {
		t.Errorf("%d messages came through", heard)
	}
	go func() { // or the rest clogs it again
		for b := make([]byte, 4096); ; {
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}()
	<-drained(words)
}

func drained(words *teller) <-chan struct{} {
	close(words.texts)
	return words.done
}

func TestTellerEndsThoughNobodyReads(t *testing.T) {
	_, w := clogged(t)
	a := &app{stderr: w}
	words := newTeller(a)
	words.report("event", "words", nil)
	words.end(a)
	a.report("event", "more", nil) // would hang
}

func TestTellerWritesAllToWhoReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	a := &app{stderr: w, quiet: true}
	words := newTeller(a)
	words.say("event", "silenced")
	words.report("event", "told", nil)
	words.end(a)
	_ = w.Close()
	lines := bufio.NewScanner(r)
	if !lines.Scan() || lines.Text() != "holdfast: told" || lines.Scan() {
		t.Errorf("%q", lines.Text())
	}
}
