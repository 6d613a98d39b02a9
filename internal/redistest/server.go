// Package redistest starts real Redis and Valkey servers for tests: one, some
// behind Sentinel, or a cluster, each in folders of its own on free ports of
// 127.0.0.1.
package redistest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Version is a make and version of the server.
type Version string

// The versions. Default is the redis-server that is installed, or the one that
// HOLDFAST_REDIS_SERVER names; the others come by `make servers`.
const (
	Default  Version = ""
	Redis62  Version = "redis-6.2.14"
	Valkey91 Version = "valkey-9.1.2"
)

func (v Version) binary() (string, error) {
	if v == Default {
		if path := os.Getenv("HOLDFAST_REDIS_SERVER"); path != "" {
			return path, nil
		}
		return "redis-server", nil
	}
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			path := filepath.Join(dir, ".tools", string(v), "server")
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

// Server is one server.
type Server struct {
	Port    int
	TLSPort int    // 0: it speaks no TLS
	Dir     string // of its data and its log

	binary string
	env    []string
	args   []string
	mu     sync.Mutex
	cmd    *exec.Cmd
}

// nextPort begins somewhere, so that two runs at once seldom meet.
var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid() % 1000 * 10)) }

// freePort is likely to be free.
func freePort() int { return 20000 + int(nextPort.Add(1))%11000 }

// errPort says that a server ended before it answered, as it does on a port
// that is taken.
var errPort = errors.New("the server ended")

// Start starts a server that keeps nothing on disk unless args, which follow
// ours, say so.
func Start(v Version, args ...string) (*Server, error) {
	return start(v, plainArgs(args))
}

func plainArgs(args []string) func(*Server) []string {
	return func(s *Server) []string {
		return append([]string{"--port", strconv.Itoa(s.Port), "--save", "", "--appendonly", "no"}, args...)
	}
}

func start(v Version, args func(*Server) []string) (*Server, error) { return startWith(v, nil, args) }

// startWith tries ports until one is free.
func startWith(v Version, env []string, args func(*Server) []string) (*Server, error) {
	binary, err := v.binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, binary: binary, env: env}
	for range 100 {
		s.Port = freePort()
		s.args = append(args(s), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no", "--logfile", filepath.Join(dir, "log"))
		if err = s.Launch(); !errors.Is(err, errPort) {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Launch starts the server, again if it was killed, and returns when it
// answers.
func (s *Server) Launch() error {
	cmd := exec.Command(s.binary, s.args...) //nolint:noctx // ended by Kill
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("tests need a redis-server (Debian: apt-get install redis-server): %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says why
		close(ended)
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case <-ended:
			log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			return fmt.Errorf("%w: %s", errPort, log)
		case <-tick.C:
			if s.answers() {
				s.mu.Lock()
				s.cmd = cmd
				s.mu.Unlock()
				return nil
			}
		}
	}
	_ = cmd.Process.Kill()
	return errors.New("the server does not answer")
}

// answers tells whether it is our server that listens, and has loaded its data.
func (s *Server) answers() bool {
	log, err := s.Do("CONFIG", "GET", "logfile")
	return err == nil && strings.Contains(log, s.Dir) || isSentinel(s) && s.sentinelAnswers()
}

// Addr is host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// URL opens it.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Signal sends one, such as SIGSTOP.
func (s *Server) Signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(sig)
	}
}

// Kill ends it as a crash does.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	for s.answers() { // until it has let go of its port
		runtime.Gosched()
	}
}

// Restart kills it and starts it again.
func (s *Server) Restart() error {
	s.Kill()
	return s.Launch()
}

// Remove ends it and removes its folder.
func (s *Server) Remove() {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}

// removeAll removes the servers that were started.
func removeAll(servers ...*Server) {
	for _, s := range servers {
		if s != nil {
			s.Remove()
		}
	}
}

// until polls for a condition.
func until(what string, ok func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			return errors.New("not in time: " + what)
		}
	}
	return nil
}
