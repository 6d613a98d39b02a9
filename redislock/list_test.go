package redislock

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A listing sees the names of all nodes and buckets, each once, and nothing that
// is not ours.
func TestListOfManyNames(t *testing.T) {
	t.Parallel()
	for what, url := range map[string]string{"one server": ownServer(t).url(), "cluster": ownCluster(t, redistest.Default, true).URL()} {
		s := openAt(t, url)
		want := map[string]bool{}
		for i := range 2000 {
			name := fmt.Sprintf("name-%d", i)
			hold(t, s, name)
			want[name] = true
		}
		for r, err := range s.List(t.Context(), "") {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if !want[r.Name] {
				t.Errorf("%s: %q once more, or foreign", what, r.Name)
			}
			delete(want, r.Name)
		}
		if len(want) > 0 {
			t.Errorf("%s: %d are missing", what, len(want))
		}
	}
}
