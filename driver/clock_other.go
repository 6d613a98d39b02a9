//go:build !linux

package driver

import "time"

// bootTime reads the monotonic clock; it stops while the machine is suspended.
func bootTime() int64 { return int64(time.Since(originTime)) }

// inBubble tells a bubble's time from that of a machine whose clock is wrong.
func inBubble(time.Time) bool { return originTime.Unix() >= bubbleEnd }
