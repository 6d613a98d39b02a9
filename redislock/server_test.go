package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/drivertest"
)

// serverVariable names another server to test with, e.g. valkey-server.
const serverVariable = "HOLDFAST_REDIS_SERVER"

// TestMain plays the suite's other processes, if told so, and ends the shared
// server when all is done.
func TestMain(m *testing.M) {
	drivertest.Main(openURL)
	status := m.Run()
	removeShared()
	os.Exit(status)
}

// patience bounds what a test waits for; a busy machine may need much.
const patience = 30 * time.Second

// server is a redis-server of a test's own.
type server struct {
	port int
	dir  string
	args []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// shared is the server of all tests that change none of its settings.
var shared = sync.OnceValues(func() (*server, error) { return launch("--appendonly", "yes", "--appendfsync", "always") })

var sharedUsed atomic.Bool

func sharedServer(tb testing.TB) *server {
	tb.Helper()
	sharedUsed.Store(true)
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func removeShared() {
	if !sharedUsed.Load() {
		return
	}
	if s, err := shared(); err == nil {
		s.remove()
	}
}

// nextPort begins somewhere, so that two runs at once seldom meet.
var nextPort atomic.Int64

func init() { nextPort.Store(20000 + int64(os.Getpid()%1000)*10) }

// launch starts a server on a free port with a folder of its own.
func launch(args ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "redislock")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, args: args}
	for range 100 {
		s.port = 20000 + int(nextPort.Add(1)-20000)%11000
		if err = s.start(); err == nil {
			return s, nil
		}
		if errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	return nil, err
}

func (s *server) start() error {
	binary := os.Getenv(serverVariable)
	if binary == "" {
		binary = "redis-server"
	}
	args := append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir, "--save", "", "--daemonize", "no",
		"--logfile", filepath.Join(s.dir, "log"),
	}, s.args...)
	cmd := exec.Command(binary, args...) //nolint:noctx,gosec // ended by kill; the developer names the binary
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
		case <-ended: // or the port is taken
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("redis-server ended: %s", log)
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
	return errors.New("redis-server does not answer")
}

// answers tells whether it is our server that listens, and has loaded its data.
func (s *server) answers() bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(context.Background(), "tcp", s.addr())
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("CONFIG GET dir\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	return err == nil && strings.Contains(string(answer[:n]), s.dir)
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }
func (s *server) url() string  { return "redis://" + s.addr() }

// kill ends it as a crash does.
func (s *server) kill() {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		for s.answers() { // until it has let go of its port
		}
	}
}

func (s *server) restart(context.Context) error {
	s.kill()
	return s.start()
}

func (s *server) remove() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}

// ownServer is a server for one test.
func ownServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	s, err := launch(args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.remove)
	return s
}

// client is a client of a test's own.
func (s *server) client(tb testing.TB) rueidis.Client {
	tb.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// open makes a store of a test's own.
func (s *server) open(tb testing.TB) *store {
	tb.Helper()
	return openAt(tb, s.url())
}
