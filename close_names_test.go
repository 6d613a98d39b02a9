package holdfast

import (
	"fmt"
	"strings"
	"testing"
)

// Close names what may remain, but no more than a person will read.
func TestDistinctNames(t *testing.T) {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("x%02d", 29-i), "x00")
	}
	if got := distinct(names); !strings.HasPrefix(got, "x00, x01, ") || !strings.HasSuffix(got, ", x19 and 10 more") {
		t.Error(got)
	}
	if got := distinct([]string{"b", "a"}); got != "a, b" {
		t.Error(got)
	}
}
