package redislock

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
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

// A key of another type, or with anything in it, is passed over by a listing, whether it
// stands for a name, goes with one, or only looks like ours. Asked for, such a name is a
// conflict, and nobody leads.
func TestListAmongForeignKeys(t *testing.T) {
	t.Parallel()
	server, cluster := ownServer(t), ownCluster(t, redistest.Default, false)
	old := versionServer(t, redistest.Redis62)
	for what, d := range map[string]struct {
		url  string
		node func(key string) *redistest.Server
	}{
		"one server": {server.url(), func(string) *redistest.Server { return server.Server }},
		"redis 6.2":  {old.url(), func(string) *redistest.Server { return old.Server }},
		"cluster":    {cluster.URL(), cluster.Owner},
	} {
		s := openAt(t, d.url)
		set := func(key string, words ...string) {
			t.Helper()
			if _, err := d.node(key).Do(append([]string{words[0], key}, words[1:]...)...); err != nil {
				t.Fatalf("%s: %v %s: %v", what, words, key, err)
			}
		}
		want := map[string]bool{}
		for i := range 50 {
			name := fmt.Sprintf("name-%d", i)
			hold(t, s, name)
			want[name] = true
		}
		foreign := spoil(t, s, set)
		got := map[string]bool{}
		for r, err := range s.List(t.Context(), "") {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got[r.Name] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v", what, slices.Sorted(maps.Keys(got)))
		}
		for _, name := range foreign {
			if r, err := s.Inspect(t.Context(), nameOf(name)); s.Classify(err) != driver.Conflict {
				t.Errorf("%s, %s: %+v, %v", what, name, r, err)
			}
			if h, err := s.Leader(t.Context(), nameOf(name)); h != nil && !strings.HasPrefix(name, "beside") || err != nil {
				t.Errorf("%s, %s is led by %+v, %v", what, name, h, err)
			}
		}
	}
}

// spoil writes what is not ours; the names that it stands for, or goes with, are given
// back.
func spoil(t *testing.T, s *store, set func(key string, words ...string)) (names []string) {
	t.Helper()
	for _, key := range []string{"hf:{", "hf:{}", "hf:{}:name", "hf:{x}:name", "hf:{0}", "hf:{0}:", "hf:{1}::elsewhere"} {
		set(key, "SET", "theirs")
	}
	for i, text := range []string{"", "theirs", "hf1 x", "hf1 w ", "hf1 w " + strings.Repeat("x", 200), "hf1 q x 0 0\n\n\n", "hf2 x 1 2 3", "\x00"} {
		names = append(names, fmt.Sprint("text-", i))
		set(recordKey(tagOf(":"+names[i]), ":"+names[i]), "SET", text)
	}
	for _, kind := range [][]string{{"RPUSH", "theirs"}, {"HSET", "f", "theirs"}, {"SADD", "theirs"}, {"XADD", "*", "f", "theirs"}} {
		name := "kind-" + kind[0]
		names = append(names, name)
		set(recordKey(tagOf(":"+name), ":"+name), kind...)
	}
	for i, mode := range []driver.Mode{driver.Exclusive, driver.Exclusive, driver.Shared} { // the queue, its places, the holders
		name := fmt.Sprint("beside-", i)
		names = append(names, name)
		req := request(name)
		req.Mode = mode
		storetest.Want(t, s, req, driver.Granted)
		enqueue(t, s, name)
		key := allKeys(":" + name)[2+i]
		set(key, "DEL")
		set(key, "SET", "theirs")
	}
	return names
}
