// Package redistest starts real Redis and Valkey servers for tests: one, some
// behind Sentinel, or a cluster, each in folders of its own on free ports of
// 127.0.0.1.
package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/testserver"
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
	dir, err := testserver.Tool(string(v))
	return filepath.Join(dir, "server"), err
}

// Server is one server.
type Server struct {
	Port    int
	TLSPort int    // 0: it speaks no TLS
	Dir     string // of its data and its log

	binary  string
	env     []string
	args    []string
	process testserver.Process
}

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
	s.process.Log = filepath.Join(dir, "log")
	for range 100 {
		s.Port = testserver.FreePort()
		s.args = append(args(s), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no", "--logfile", s.process.Log)
		if err = s.Launch(); !errors.Is(err, testserver.ErrEnded) {
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
	if err := s.process.Begin(cmd); err != nil {
		return fmt.Errorf("tests need a redis-server (Debian: apt-get install redis-server): %w", err)
	}
	return s.process.Await(s.answers)
}

// answers tells whether it is our server that listens, and has loaded its data.
func (s *Server) answers() bool {
	log, err := s.Do("CONFIG", "GET", "logfile")
	return err == nil && strings.Contains(log, s.Dir) || isSentinel(s) && s.sentinelAnswers()
}

// Addr is host:port.
func (s *Server) Addr() string { return testserver.Addr(s.Port) }

// URL opens it.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Signal sends one, such as SIGSTOP.
func (s *Server) Signal(sig syscall.Signal) { _ = s.process.Signal(sig) }

// Kill ends it as a crash does.
func (s *Server) Kill() { s.process.Kill() }

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
