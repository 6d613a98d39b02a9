//go:build linux

package filelock

import (
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A file that a person cuts off while it is mapped is like one that he cut off
// before: nothing dies of it, and tokens grow.
func TestPageOfFileThatIsCutOff(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	var last uint64
	grant := func() {
		t.Helper()
		g := s.hold("k", driver.Exclusive)
		if g.token <= last {
			t.Fatalf("token %d after %d", g.token, last)
		}
		last = g.token
		g.release()
	}
	grant()
	f := s.idleFile("k")
	for range 3 {
		f.verified = time.Now().Add(time.Hour) // as if each grant came right after the last
		grant()
	}
	if f.page == nil {
		t.Fatal("the page was never mapped")
	}
	for _, size := range []int64{0, 10, headerSize + 5} {
		if err := os.Truncate(dir+"/k.lock", size); err != nil {
			t.Fatal(err)
		}
		f.verified = time.Now().Add(time.Hour)
		grant()
	}
}

// What is written through the page is what readers of the file see, and an
// ordinary write follows soon, so that sweepers see the file in use.
func TestPageIsTheFile(t *testing.T) {
	dir := t.TempDir()
	s, other := openStore(t, dir, nil), openStore(t, dir, nil)
	s.hold("k", driver.Exclusive).release()
	f := s.idleFile("k")
	f.verified = time.Now().Add(time.Hour)
	g := s.hold("k", driver.Exclusive)
	if f.page == nil {
		t.Fatal("the page was never mapped")
	}
	in, err := other.Inspect(t.Context(), driver.Name{Key: "k", Full: "k"})
	if err != nil || len(in.Holders) != 1 || in.Holders[0].Token != g.token {
		t.Fatalf("%+v %v", in, err)
	}
	g.release()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir+"/k.lock", past, past); err != nil {
		t.Fatal(err)
	}
	f.verified = past
	s.hold("k", driver.Exclusive).release()
	if st, err := os.Stat(dir + "/k.lock"); err != nil || time.Since(st.ModTime()) > time.Minute {
		t.Fatal("a grant after a while left the file's time as it was", err)
	}
}

// idleFile is the open file of a key that is not held.
func (c *client) idleFile(key string) *file {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.idle.seats[key]; st != nil && st.file != nil {
		return st.file
	}
	c.tb.Fatalf("no file of %s is kept", key)
	return nil
}
