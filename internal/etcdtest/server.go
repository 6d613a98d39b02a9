// Package etcdtest starts real etcd servers for tests: one, or a cluster, each
// with a folder of its own, in memory where that can be had, on free ports of
// 127.0.0.1.
package etcdtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Version is a version of the server.
type Version string

// The versions; they come by `make servers`, the old one only for `make
// test-full`. Default is also replaced by what HOLDFAST_ETCD_SERVER names.
const (
	Default Version = "etcd-v3.6.16"
	Old     Version = "etcd-3.4.23/usr/bin/etcd"
)

func (v Version) binary() (string, error) {
	if path := os.Getenv("HOLDFAST_ETCD_SERVER"); v == Default && path != "" {
		return path, nil
	}
	return testserver.Tool(string(v))
}

// Cluster is one server or more.
type Cluster struct{ Nodes []*Node }

// Node is one server.
type Node struct {
	Addr   string // of its clients
	Secure string // of those that come over TLS, if a certificate is among the arguments

	binary, dir, peer string
	args              []string
	process           testserver.Process
}

func freeAddr() string { return testserver.Addr(testserver.FreePort()) }

// Start starts so many servers of a version, with more arguments. With
// --cert-file=PATH among them they serve TLS too.
func Start(v Version, nodes int, args ...string) (c *Cluster, err error) {
	binary, err := v.binary()
	if err != nil {
		return nil, err
	}
	for range 5 { // a port may be taken meanwhile
		if c, err = try(binary, nodes, args); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func try(binary string, nodes int, args []string) (*Cluster, error) {
	c := &Cluster{}
	var members []string
	for i := range nodes {
		dir, err := testserver.Folder("etcdtest")
		if err != nil {
			return nil, err
		}
		n := &Node{binary: binary, dir: dir, Addr: freeAddr(), peer: freeAddr()}
		if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--cert-file=") }) {
			n.Secure = freeAddr()
		}
		n.process.Log = filepath.Join(dir, "log")
		c.Nodes = append(c.Nodes, n)
		members = append(members, fmt.Sprintf("n%d=http://%s", i, n.peer))
	}
	// One server elects itself at once; several on a busy machine would miss each
	// other's heartbeats. Leases of a second are granted either way.
	heartbeat, election := "10", "100"
	if nodes > 1 {
		heartbeat, election = "50", "500"
	}
	for i, n := range c.Nodes {
		n.args = append([]string{
			"--name", fmt.Sprintf("n%d", i), "--data-dir", filepath.Join(n.dir, "data"), "--log-level", "error",
			"--listen-client-urls", n.listens(), "--advertise-client-urls", "http://" + n.Addr,
			"--listen-peer-urls", "http://" + n.peer, "--initial-advertise-peer-urls", "http://" + n.peer,
			"--initial-cluster", strings.Join(members, ","), "--heartbeat-interval", heartbeat, "--election-timeout", election,
		}, args...)
	}
	if err := c.Start(); err != nil {
		c.Remove()
		return nil, err
	}
	return c, nil
}

func (n *Node) listens() string {
	if n.Secure == "" {
		return "http://" + n.Addr
	}
	return "http://" + n.Addr + ",https://" + n.Secure
}

// Start starts all servers that do not run.
func (c *Cluster) Start() error {
	for _, n := range c.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := n.process.Await(n.serves); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the server, if it does not run, and does not wait for it.
func (n *Node) Start() error {
	if err := n.process.Begin(exec.Command(n.binary, n.args...)); err != nil { //nolint:noctx // ended by Kill
		return fmt.Errorf("tests need an etcd server (make servers): %w", err)
	}
	return nil
}

func (n *Node) serves() bool {
	text, err := n.Get("/health")
	return err == nil && strings.Contains(text, `"true"`)
}

// Get reads one of the pages that the server has for people and metrics.
func (n *Node) Get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Addr+path, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// Kill ends it as a crash does.
func (n *Node) Kill() { n.process.Kill() }

// Signal stops a server, or lets it go on.
func (n *Node) Signal(sig syscall.Signal) error { return n.process.Signal(sig) }

// Kill ends all.
func (c *Cluster) Kill() {
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Restart kills all, and starts them with their data.
func (c *Cluster) Restart(context.Context) error {
	c.Kill()
	return c.Start()
}

// Remove ends all, and deletes their data.
func (c *Cluster) Remove() {
	c.Kill()
	for _, n := range c.Nodes {
		_ = os.RemoveAll(n.dir)
	}
}

// URL is what Open takes.
func (c *Cluster) URL() string {
	hosts := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		hosts[i] = n.Addr
	}
	return "etcd://" + strings.Join(hosts, ",")
}
