package holdfast

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestTrustEndsBeforeTheWindow(t *testing.T) {
	for _, v := range []struct{ window, trusted time.Duration }{
		{200 * time.Millisecond, 148 * time.Millisecond}, // 1 % drift, 50 ms margin
		{3 * time.Second, 2910 * time.Millisecond},       // 1 % drift, 1/50 margin
		{30 * time.Second, 29100 * time.Millisecond},
		{24 * time.Hour, 24 * time.Hour * 97 / 100},
	} {
		if got := trustUntil(driver.Instant(1000), v.window).Sub(1000); got != v.trusted {
			t.Errorf("window %v is trusted for %v, want %v", v.window, got, v.trusted)
		}
	}
	if trustUntil(1000, 0) != never {
		t.Error("a hold without a window has a deadline")
	}
}
