package holdfast

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Alarms that are set, moved and cancelled at random stand in the heap as in a list,
// and are due in the order of their times.
func TestAlarms(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var k keeper
		k.init(&Client{stopped: true}) // so that it does not ring
		alarms := make([]alarm, 40)
		due := map[*alarm]driver.Instant{}
		times := 1 + random.Int64N(10)
		for range 400 {
			a := &alarms[random.IntN(len(alarms))]
			switch random.IntN(8) {
			case 0, 1:
				k.cancel(a)
				delete(due, a)
			case 2:
				a.at = never
				k.set(a)
				delete(due, a)
			case 3:
				if first := earliest(due); len(k.heap) > 0 && k.heap[0].at != first {
					t.Fatalf("seed %d: %v is first, want %v", seed, k.heap[0].at, first)
				} else if len(k.heap) > 0 {
					a = k.heap[0].alarm
					k.cancel(a)
					delete(due, a)
				}
			default: // often the same time as the one before
				a.at = driver.Instant(random.Int64N(times))
				k.set(a)
				due[a] = a.at
			}
			checkAlarms(t, &k, due)
		}
		if k.timer.Stop(); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func earliest(due map[*alarm]driver.Instant) driver.Instant {
	first := never
	for _, at := range due {
		first = min(first, at)
	}
	return first
}

// checkAlarms compares the heap and its chains with the alarms that must be there.
func checkAlarms(t *testing.T, k *keeper, due map[*alarm]driver.Instant) {
	t.Helper()
	var found []*alarm
	var ends []*alarm
	for i, e := range k.heap {
		if e.index != i || e.prev != nil || k.heap[(i-1)/2].at > e.at {
			t.Errorf("entry %d of the heap: %+v", i, e)
		}
		for a := e.alarm; a != nil; a = a.next {
			if at, ok := due[a]; !ok || !a.set || a.at != at || e.at != at || a.next != nil && a.next.prev != a {
				t.Errorf("alarm %+v, due %v %t", a, at, ok)
			}
			if found = append(found, a); a.next == nil {
				ends = append(ends, a)
			}
		}
	}
	if len(found) != len(due) {
		t.Errorf("%d alarms in the heap, want %d", len(found), len(due))
	}
	if k.latest != nil && !slices.Contains(ends, k.latest) {
		t.Error("the latest alarm ends no chain")
	}
}
