package cli

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast"
)

// openTerminal gives both ends of a terminal.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	var locked, number int32
	if !ioctl(screen, syscall.TIOCSPTLCK, unsafe.Pointer(&locked)) || !ioctl(screen, syscall.TIOCGPTN, unsafe.Pointer(&number)) {
		t.Fatal("not a terminal")
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return screen, terminal
}

// On a terminal a candidate tells of an outage in place of the line that is there,
// once, in its later campaigns too.
func TestOutageOfCampaigns(t *testing.T) {
	client, err := holdfast.Open(t.Context(), "test://", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	screen, terminal := openTerminal(t)
	w := &waitTeller{a: &app{stderr: terminal}, name: "L"}
	var seen strings.Builder
	reads := func(text string) {
		t.Helper()
		for b := make([]byte, 4096); !strings.Contains(seen.String(), text); {
			n, err := screen.Read(b)
			if err != nil {
				t.Fatalf("%q, and then: %v", seen.String(), err)
			}
			seen.Write(b[:n])
		}
	}
	silent := &holdfast.Error{Op: "acquire", Kind: holdfast.ErrUnavailable}
	for campaign := range 2 {
		stop := w.start(client)
		w.show("waiting")
		w.down(&holdfast.Event{Kind: holdfast.EventStoreDown, Name: "L", Err: silent})
		w.down(&holdfast.Event{Kind: holdfast.EventStoreDown, Name: "L", Err: silent, Took: time.Hour}) // the same
		stop()
		fmt.Fprintln(terminal, "stopped", campaign)
		reads(fmt.Sprint("stopped ", campaign))
		if n := strings.Count(seen.String(), "\r\x1b[Kholdfast: waiting for the store"); n != campaign+1 || n != strings.Count(seen.String(), "the store") {
			t.Errorf("campaign %d: %q", campaign, seen.String())
		}
	}
}
