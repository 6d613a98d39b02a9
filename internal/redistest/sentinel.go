package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// MasterName is what the sentinels call their master.
const MasterName = "main"

// Replicated is a master with replicas, watched by three sentinels.
type Replicated struct {
	Servers   []*Server // the first is the master to begin with
	Sentinels []*Server
	tls       *TLS
}

// StartSentinel starts a master, two replicas, and sentinels that fail over
// within some seconds. args are for each server.
func StartSentinel(v Version, args ...string) (*Replicated, error) {
	return StartSentinelTLS(v, nil, args...)
}

// StartSentinelTLS is StartSentinel with TLS, of the sentinels too. nil: without.
func StartSentinelTLS(v Version, t *TLS, args ...string) (*Replicated, error) {
	r := &Replicated{tls: t}
	err := r.start(v, args)
	if err != nil {
		r.Remove()
		return nil, err
	}
	return r, nil
}

func (r *Replicated) start(v Version, args []string) error {
	master, err := StartTLS(v, r.tls, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)
	if err != nil {
		return err
	}
	r.Servers = append(r.Servers, master)
	for range 2 {
		s, err := startReplica(v, r.tls, master, args)
		if err != nil {
			return err
		}
		r.Servers = append(r.Servers, s)
	}
	for range 3 {
		s, err := r.startSentinel(v)
		if err != nil {
			return err
		}
		r.Sentinels = append(r.Sentinels, s)
	}
	return r.Settled()
}

// StartReplica starts a server that follows master, and waits until it is in step. args
// are its own.
func StartReplica(v Version, master *Server, args ...string) (*Server, error) {
	return startReplica(v, nil, master, args)
}

func startReplica(v Version, t *TLS, master *Server, args []string) (*Server, error) {
	own := append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s, err := StartTLS(v, t, append(own, "--replicaof", "127.0.0.1", strconv.Itoa(master.peerPort()))...)
	if err != nil {
		return nil, err
	}
	if err := testserver.Until("a replica in step", func() bool { return s.Info("master_link_status") == "up" }); err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// startSentinel starts a sentinel, which keeps what it knows in its own
// configuration file.
func (r *Replicated) startSentinel(v Version) (*Server, error) {
	return start(v, func(s *Server) []string {
		file := filepath.Join(s.Dir, "sentinel.conf")
		config := fmt.Sprintf("port %d\nsentinel monitor %[2]s 127.0.0.1 %[3]d 2\nsentinel down-after-milliseconds %[2]s 1000\n"+
			"sentinel failover-timeout %[2]s 3000\n", s.Port, MasterName, r.Servers[0].peerPort())
		if r.tls != nil {
			s.TLSPort = testserver.FreePort()
			config += r.tls.config(s.TLSPort)
		}
		_ = os.WriteFile(file, []byte(config), 0o600) // the server will say that it is missing
		return []string{file, "--sentinel"}
	})
}

func isSentinel(s *Server) bool { return len(s.args) > 1 && s.args[1] == "--sentinel" }

// sentinelAnswers tells whether it is our sentinel that listens: of others' the
// file does not name the id.
func (s *Server) sentinelAnswers() bool {
	id, err := s.Do("SENTINEL", "MYID")
	if err != nil {
		return false
	}
	file, err := os.ReadFile(s.args[0])
	return err == nil && strings.Contains(string(file), id)
}

// Settled waits until all sentinels know each other and the replicas.
func (r *Replicated) Settled() error {
	return testserver.Until("sentinels that know each other", func() bool {
		for _, s := range r.Sentinels {
			text, err := s.Do("SENTINEL", "CKQUORUM", MasterName)
			if err != nil || !strings.HasPrefix(text, "OK 3 usable") {
				return false
			}
			if text, err = s.Do("SENTINEL", "REPLICAS", MasterName); err != nil || strings.Count(text, "master-link-status\nok") != 2 {
				return false
			}
		}
		return true
	})
}

// Master is the server that the sentinels call so.
func (r *Replicated) Master() *Server {
	for _, sentinel := range r.Sentinels {
		text, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		if err != nil {
			continue
		}
		for _, s := range r.Servers {
			if text == "127.0.0.1\n"+strconv.Itoa(s.peerPort()) {
				return s
			}
		}
	}
	return nil
}

// Failover makes the sentinels choose another master, which the old one
// follows, and waits until they agree.
func (r *Replicated) Failover() error {
	old := r.Master()
	if err := testserver.Until("a failover", func() bool {
		_, err := r.Sentinels[0].Do("SENTINEL", "FAILOVER", MasterName)
		return err == nil
	}); err != nil {
		return err
	}
	return testserver.Until("another master", func() bool {
		now := r.Master()
		return now != nil && now != old && now.Info("role") == "master" && old.Info("role") == "slave"
	})
}

// URL opens it.
func (r *Replicated) URL() string {
	return scheme(r.tls) + "+sentinel://" + addrs(r.Sentinels) + "/" + MasterName
}

// Remove ends all, the sentinels first, and removes their folders.
func (r *Replicated) Remove() {
	removeAll(r.Sentinels...)
	var wg sync.WaitGroup
	for _, s := range r.Servers {
		wg.Go(s.Remove)
	}
	wg.Wait()
}
