package zklock

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// ensemble is three servers.
type ensemble []*server

func newEnsemble(tb testing.TB, jars string) ensemble {
	tb.Helper()
	e := make(ensemble, 3)
	lines := []string{"initLimit=50", "syncLimit=10"}
	for i := range e {
		dir, err := scratch()
		if err != nil {
			tb.Fatal(err)
		}
		e[i] = &server{dir: dir, jars: jars, port: freePort()}
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d;127.0.0.1:%d", i+1, freePort(), freePort(), e[i].port))
	}
	var wg sync.WaitGroup
	for i, s := range e {
		tb.Cleanup(s.remove)
		if err := os.MkdirAll(filepath.Join(s.dir, "data"), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, "data", "myid"), []byte(strconv.Itoa(i+1)), 0o600); err != nil {
			tb.Fatal(err)
		}
		if err := s.configure(lines...); err != nil {
			tb.Fatal(err)
		}
		wg.Go(func() {
			if err := s.start(); err != nil {
				tb.Error(err)
			}
		})
	}
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	return e
}

func (e ensemble) url() string {
	var addrs []string
	for _, s := range e {
		addrs = append(addrs, s.addr())
	}
	return "zookeeper://" + strings.Join(addrs, ",") + "/holdfast"
}

// leader is the one that leads, and the rest.
func (e ensemble) leader(tb testing.TB) (leader *server, followers []*server) {
	tb.Helper()
	until(tb, "a leader", func() bool {
		leader, followers = nil, nil
		for _, s := range e {
			switch s.mode() {
			case "leader":
				leader = s
			case "follower":
				followers = append(followers, s)
			}
		}
		return leader != nil && len(followers) == 2
	})
	return leader, followers
}
