package holdfast

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

var update = flag.Bool("update", false, "write docs/defaults.md anew")

//go:generate go test -run TestDefaultsPage -update .

// TestDefaultsPage holds docs/defaults.md against the constants.
func TestDefaultsPage(t *testing.T) {
	const path = "docs/defaults.md"
	page := defaultsPage()
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page {
		t.Errorf("%s is out of date; run: make docs", path)
	}
}

func defaultsPage() string {
	var b strings.Builder
	b.WriteString("# Defaults and limits\n\nGenerated from options.go; `make docs` writes it anew.\n\n| what | value |\n|---|---|\n")
	for _, row := range []struct {
		what  string
		value string
	}{
		{"TTL of a lease", DefaultTTL.String()},
		{"shortest and longest TTL", MinTTL.String() + " to " + MaxTTL.String()},
		{"renewal", fmt.Sprintf("every TTL/%d", renewFraction)},
		{"a look at a hold on the file store", fmt.Sprintf("every TTL/%d, at least every %v", renewFraction, localCheck)},
		{"trusted difference of two clocks' rates", fmt.Sprintf("%d %%", driftPercent)},
		{"margin before the end of a lease", fmt.Sprintf("the larger of %v and TTL/%d", minMargin, marginFraction)},
		{"one request to the store", fmt.Sprintf("the smaller of %v and TTL/%d", maxRequestTimeout, renewFraction)},
		{"time for a release, and for Close", releaseBudget.String()},
		{"claim window of a hand-over", fmt.Sprintf("the smaller of %v and the TTL", claimWindow)},
		{"heartbeat of a place in the queue", fmt.Sprintf("%v for the first %d, then %v; sooner when the present lease ends", beatEarly, beatEarlyCount, beatLate)},
		{"local hand-overs in a turn", fmt.Sprintf("%d, within %v", turnHandOvers, turnTime)},
		{"pause between attempts, where there is no queue", fmt.Sprintf("doubles from %v to %v, half of it by chance", pollMin, pollMax)},
		{"a wait that is logged and told to hooks", fmt.Sprintf("over %v", longWait)},
		{"grace of a leader's work", fmt.Sprintf("TTL/%d; below TTL/%d", graceFraction, renewFraction)},
		{"pause before a leader whose work failed campaigns again", fmt.Sprintf("doubles from %v to %v, half of it by chance", termPauseMin, termPauseMax)},
		{"an observer of an election asks", fmt.Sprintf("every %v, on local stores every %v; every %v where the store tells of changes; a tenth by chance", observeEvery, observeLocal, observeWatched)},
		{"longest value of a leader", fmt.Sprintf("%d bytes", driver.MaxValue)},
		{"longest name, label", fmt.Sprintf("%d bytes, %d bytes", MaxNameBytes, MaxLabelBytes)},
		{"largest limit of a semaphore", strconv.Itoa(MaxPermits)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row.what, row.value)
	}
	return b.String()
}
