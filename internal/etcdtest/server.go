// Package etcdtest starts real etcd servers for tests: one, or a cluster, each
// with a folder of its own, in memory where that can be had, on free ports of
// 127.0.0.1.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
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
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			path := filepath.Join(dir, ".tools", string(v))
			if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("tests need %s: run make servers", path)
			}
			return path, err
		}
		if here, err := filepath.Abs(dir); err != nil || here == "/" {
			return "", errors.New("tests need the whole checkout: no go.work above")
		}
	}
}

// patience bounds what is waited for; a busy machine may need much.
const patience = 30 * time.Second

// Cluster is one server or more.
type Cluster struct{ Nodes []*Node }

// Node is one server.
type Node struct {
	Addr   string // of its clients
	Secure string // of those that come over TLS, if a certificate is among the arguments

	binary, dir, peer string
	args              []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// nextPort begins somewhere, so that two runs at once seldom meet.
var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid() % 1000 * 10)) }

// FreeAddr is an address on which nobody listens now, and whose port the kernel
// gives to no outgoing connection: a server that is started again finds it free.
func FreeAddr() (addr string, err error) {
	for range 1000 {
		var l net.Listener
		addr = fmt.Sprintf("127.0.0.1:%d", 10000+nextPort.Add(1)%10000)
		if l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", err
}

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
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	c := &Cluster{}
	var members []string
	for i := range nodes {
		dir, err := os.MkdirTemp(base, "etcdlock")
		if err != nil {
			return nil, err
		}
		n := &Node{binary: binary, dir: dir}
		c.Nodes = append(c.Nodes, n)
		var err1, err2 error
		n.Addr, err1 = FreeAddr()
		n.peer, err2 = FreeAddr()
		err3 := n.secure(args)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
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

func (n *Node) secure(args []string) (err error) {
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--cert-file=") }) {
		n.Secure, err = FreeAddr()
	}
	return err
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
		if err := n.await(); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the server, if it does not run, and does not wait for it.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return nil
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                        //nolint:errcheck // nothing is lost
	cmd := exec.Command(n.binary, n.args...) //nolint:noctx // ended by kill
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("tests need an etcd server (make servers): %w", err)
	}
	n.cmd = cmd
	return nil
}

// await waits until the server serves.
func (n *Node) await() error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if text, err := n.Get("/health"); err == nil && strings.Contains(text, `"true"`) {
			return nil
		}
		n.mu.Lock()
		cmd := n.cmd
		n.mu.Unlock()
		if cmd == nil || cmd.Process.Signal(syscall.Signal(0)) != nil || zombie(cmd.Process.Pid) {
			break
		}
	}
	n.Kill()
	log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
	return fmt.Errorf("etcd does not serve: %s", log)
}

// zombie tells whether a process has ended and was not waited for.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(text), ") ")
	return err != nil || ok && strings.HasPrefix(rest, "Z")
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
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	n.cmd = nil
}

// Signal stops a server, or lets it go on.
func (n *Node) Signal(sig syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.Process.Signal(sig)
}

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
