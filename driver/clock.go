package driver

import "time"

// Instant is a reading of the clock on which a holder trusts its lease. It
// only grows, does not stop while the machine is suspended (CLOCK_BOOTTIME, on
// Linux), and means nothing to another process.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Until returns the time from now to i, negative if it has passed.
func (i Instant) Until() time.Duration { return time.Duration(i - Now()) }

// The clock's origin: both readings of one moment, so that the two clocks
// agree until the machine is suspended for the first time.
var (
	originTime = time.Now()
	originBoot = bootTime()
)

// bubbleEnd is after any time that a testing/synctest bubble, which starts at
// 2000-01-01, is likely to see, and before any real machine's date.
var bubbleEnd = time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// bubbleOffset keeps a bubble's instants positive: its time lies before ours.
const bubbleOffset = 1 << 60

// Now reads the clock. It costs one system call and no allocation. Within a
// testing/synctest bubble it follows the bubble's time.
func Now() Instant {
	if t := time.Now(); t.Unix() < bubbleEnd && inBubble(t) {
		return Instant(originBoot) + Instant(t.Sub(originTime)) + bubbleOffset
	}
	return Instant(bootTime())
}
