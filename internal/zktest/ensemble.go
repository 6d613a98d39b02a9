package zktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Ensemble is three servers.
type Ensemble []*Server

// StartEnsemble starts three servers that know each other.
func StartEnsemble(v Version) (Ensemble, error) {
	e := make(Ensemble, 3)
	lines := []string{"initLimit=50", "syncLimit=10"}
	for i := range e {
		s, err := newServer(v)
		if err != nil {
			return nil, err
		}
		e[i] = s
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d;127.0.0.1:%d", i+1, testserver.FreePort(), testserver.FreePort(), s.Port))
	}
	var wg sync.WaitGroup
	errs := make([]error, len(e))
	for i, s := range e {
		wg.Go(func() { errs[i] = s.join(i+1, lines) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err != nil {
		e.Remove()
	}
	return e, err
}

func (s *Server) join(id int, lines []string) error {
	data := filepath.Join(s.Dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(id)), 0o600); err != nil {
		return err
	}
	if err := s.configure(lines...); err != nil {
		return err
	}
	return s.Start()
}

// URL opens the ensemble by all of its servers.
func (e Ensemble) URL() string {
	var addrs []string
	for _, s := range e {
		addrs = append(addrs, s.Addr())
	}
	return "zookeeper://" + strings.Join(addrs, ",") + "/holdfast"
}

// Leader waits until one leads and the others follow.
func (e Ensemble) Leader() (leader *Server, followers []*Server, err error) {
	err = testserver.Until("a leader, and the others follow", func() bool {
		leader, followers = nil, nil
		for _, s := range e {
			switch s.Mode() {
			case "leader":
				leader = s
			case "follower":
				followers = append(followers, s)
			}
		}
		return leader != nil && len(followers) == len(e)-1
	})
	return leader, followers, err
}

// Remove ends all and deletes their data.
func (e Ensemble) Remove() {
	for _, s := range e {
		s.Remove()
	}
}
