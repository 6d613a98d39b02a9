package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

func TestWatcher(t *testing.T) {
	var got []string
	w := watcher{print: func(c *change) {
		switch c.Event {
		case "gap":
			got = append(got, "gap "+short(c.gap))
		case "error":
			got = append(got, "error "+c.Error)
		default:
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Event, c.Name, c.Holder.Owner, c.Holder.Value)))
		}
	}}
	now := time.Now()
	look := func(after time.Duration, err error, holds ...string) {
		now = now.Add(after)
		var records []holdfast.Record
		for _, h := range holds {
			name, owner, _ := strings.Cut(h, " ")
			owner, broken := strings.CutSuffix(owner, " broken")
			owner, value, _ := strings.Cut(owner, " says ")
			holder := holdfast.Holder{Owner: owner, Value: value, Mode: holdfast.Exclusive}
			if broken {
				holder.Broken = "x"
			}
			records = append(records, holdfast.Record{Name: name, Holders: []holdfast.Holder{holder}})
		}
		w.look(now, records, err)
	}
	const tick = 250 * time.Millisecond
	look(tick, nil, "L a")
	look(tick, nil, "L a", "M b")
	look(tick, nil, "L c", "M b broken") // from a to c between two looks
	look(tick, nil, "L c", "M b broken")
	look(2100*time.Millisecond, nil, "L c")
	look(tick, errors.New("down"))
	look(tick, errors.New("down"))
	look(tick, nil, "L c")
	look(tick, nil)
	look(tick, nil, "E d says 1") // leaders
	look(tick, nil, "E d says 2")
	look(tick, nil, "E d says 2")
	look(tick, nil, "E d says 3 broken")
	look(tick, nil)
	want := []string{
		"held L a", "acquired M b", "released L a", "acquired L c", "broken M b",
		"gap 2.1s", "released M b", "error down", "gap 750ms", "released L c",
		"acquired E d 1", "value E d 2", "value E d 3", "broken E d 3", "released E d 3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A hold whose token the store learns late is one hold all the time.
func TestWatcherLateToken(t *testing.T) {
	var got []string
	w := watcher{print: func(c *change) { got = append(got, fmt.Sprintf("%s %d", c.Event, c.holder.Token)) }}
	now := time.Now()
	for _, token := range []uint64{0, 0, 7, 7, 9} {
		now = now.Add(time.Millisecond)
		w.look(now, []holdfast.Record{{Name: "L", Holders: []holdfast.Holder{{Owner: "a", Token: token}}}}, nil)
	}
	w.look(now, nil, nil)
	if want := []string{"held 0", "released 7", "acquired 9", "released 9"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
