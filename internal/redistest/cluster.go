package redistest

import (
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// slots is how many a cluster has.
const slots = 16384

// Cluster is three masters that share the slots, each with a replica if asked.
type Cluster struct {
	Masters  []*Server
	Replicas []*Server // the i-th of the i-th master
	tls      *TLS
}

// StartCluster starts a cluster. args are for each server.
func StartCluster(v Version, replicas bool, args ...string) (*Cluster, error) {
	return StartClusterTLS(v, nil, replicas, args...)
}

// StartClusterTLS is StartCluster with TLS. nil: without.
func StartClusterTLS(v Version, t *TLS, replicas bool, args ...string) (*Cluster, error) {
	c := &Cluster{tls: t}
	err := c.start(v, replicas, args)
	if err != nil {
		c.Remove()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(v Version, replicas bool, args []string) error {
	own := append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--repl-diskless-sync-delay", "0",
	}, args...)
	n := 3
	if replicas {
		n = 6
	}
	var all []*Server
	for i := range n {
		s, err := StartTLS(v, c.tls, own...)
		if err != nil {
			return err
		}
		if all = append(all, s); i < 3 {
			c.Masters = append(c.Masters, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	for i, s := range c.Masters {
		if err := s.own(i*slots/3, (i+1)*slots/3); err != nil {
			return err
		}
		if _, err := s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for _, s := range all[1:] {
		if _, err := s.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(all[0].peerPort())); err != nil {
			return err
		}
	}
	for i, s := range c.Replicas {
		id, err := c.Masters[i].Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		if err := testserver.Until("a replica", func() bool {
			_, err := s.Do("CLUSTER", "REPLICATE", id)
			return err == nil
		}); err != nil {
			return err
		}
	}
	return c.Settled()
}

// own takes the slots from from to below to.
func (s *Server) own(from, to int) error {
	words := []string{"CLUSTER", "ADDSLOTS"}
	for slot := from; slot < to; slot++ {
		words = append(words, strconv.Itoa(slot))
	}
	_, err := s.Do(words...)
	return err
}

// Settled waits until every node knows all others and serves its slots.
func (c *Cluster) Settled() error {
	all := append(append([]*Server{}, c.Masters...), c.Replicas...)
	return testserver.Until("a cluster that serves", func() bool {
		for _, s := range all {
			info, err := s.Do("CLUSTER", "INFO")
			if err != nil || !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(all))+"\r\n") {
				return false
			}
			slots, err := s.Do("CLUSTER", "SLOTS")
			for _, other := range all { // none is missing, none a master without slots
				if err != nil || !strings.Contains(slots+"\n", "\n"+strconv.Itoa(other.Port)+"\n") {
					return false
				}
			}
		}
		for _, s := range c.Replicas {
			if s.Info("role") != "slave" || s.Info("master_link_status") != "up" {
				return false
			}
		}
		return true
	})
}

// Owner is the master that serves a key.
func (c *Cluster) Owner(key string) *Server {
	for _, s := range append(append([]*Server{}, c.Masters...), c.Replicas...) {
		if _, err := s.Do("GET", key); err == nil || strings.HasPrefix(err.Error(), "WRONGTYPE") {
			return s
		}
	}
	return nil
}

// Move is a slot on its way from one master to another, by hand.
type Move struct {
	From, To *Server
	cluster  *Cluster
	slot     string
	fromID   string
	toID     string
}

// BeginMove marks the slot of a key as moving to another master.
func (c *Cluster) BeginMove(key string) (*Move, error) {
	m := &Move{From: c.Owner(key), cluster: c}
	for _, s := range c.Masters {
		if s != m.From {
			m.To = s
		}
	}
	var err error
	if m.slot, err = m.From.Do("CLUSTER", "KEYSLOT", key); err != nil {
		return nil, err
	}
	if m.fromID, err = m.From.Do("CLUSTER", "MYID"); err != nil {
		return nil, err
	}
	if m.toID, err = m.To.Do("CLUSTER", "MYID"); err != nil {
		return nil, err
	}
	if _, err = m.To.Do("CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.fromID); err != nil {
		return nil, err
	}
	_, err = m.From.Do("CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.toID)
	return m, err
}

// Keys moves those that are in the slot now.
func (m *Move) Keys() error {
	text, err := m.From.Do("CLUSTER", "GETKEYSINSLOT", m.slot, "1000")
	if err != nil || text == "" {
		return err
	}
	words := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(m.To.Port), "", "0", "5000", "KEYS"}
	_, err = m.From.Do(append(words, strings.Split(text, "\n")...)...)
	return err
}

// End gives the slot to its new master, and waits until all know it.
func (m *Move) End() error {
	for _, s := range []*Server{m.To, m.From} {
		if _, err := s.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.toID); err != nil {
			return err
		}
	}
	for _, s := range m.cluster.Masters {
		if _, err := s.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.toID); err != nil {
			return err
		}
	}
	return nil
}

// URL opens it.
func (c *Cluster) URL() string {
	return scheme(c.tls) + "+cluster://" + addrs(c.Masters)
}

// Remove ends all and removes their folders.
func (c *Cluster) Remove() {
	var wg sync.WaitGroup
	for _, s := range append(append([]*Server{}, c.Masters...), c.Replicas...) {
		wg.Go(s.Remove)
	}
	wg.Wait()
}
