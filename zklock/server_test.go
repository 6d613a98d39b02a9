package zklock

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

	"github.com/holdfast-go/holdfast/drivertest"
)

// TestMain plays the suite's other processes, if told so, and ends the shared
// server when all is done.
func TestMain(m *testing.M) {
	drivertest.Main(openURL)
	status := m.Run()
	removeShared()
	os.Exit(status)
}

// patience bounds what a test waits for; a busy machine may need much.
const patience = 60 * time.Second

// debianJars are what the package zookeeper installs.
const debianJars = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar"

// tick is the servers' unit of time: sessions are at least two of it, and end up
// to one late.
const tick = 200 * time.Millisecond

// server is one ZooKeeper of a test's own.
type server struct {
	port int
	dir  string
	jars string
	args []string // of java

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// shared is the server of all tests that neither disturb it nor count.
var shared = sync.OnceValues(func() (*server, error) { return launch(nil) })

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

func init() { nextPort.Store(int64(os.Getpid()%1000) * 10) }

func freePort() int {
	for {
		port := 20000 + int(nextPort.Add(1))%11000
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
}

// scratch is a folder in memory where there is one.
func scratch() (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "zklock")
	if err != nil {
		return os.MkdirTemp("", "zklock")
	}
	return dir, nil
}

// launch starts a lone server.
func launch(args []string, lines ...string) (*server, error) {
	dir, err := scratch()
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, jars: debianJars, args: args}
	for range 20 {
		s.port = freePort()
		if err := s.configure(lines...); err != nil {
			return nil, err
		}
		if err = s.start(); err == nil {
			return s, nil
		}
		if errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	return nil, err
}

func (s *server) configure(lines ...string) error {
	config := append([]string{
		fmt.Sprintf("tickTime=%d", tick.Milliseconds()), "dataDir=" + filepath.Join(s.dir, "data"), fmt.Sprintf("clientPort=%d", s.port),
		"clientPortAddress=127.0.0.1", "admin.enableServer=false", "4lw.commands.whitelist=*", "maxClientCnxns=0",
		"minSessionTimeout=400", "maxSessionTimeout=120000",
	}, lines...)
	return os.WriteFile(filepath.Join(s.dir, "zoo.cfg"), []byte(strings.Join(config, "\n")+"\n"), 0o600)
}

func (s *server) begin() error {
	for jar := range strings.SplitSeq(s.jars, ":") {
		if _, err := os.Stat(jar); err != nil {
			return fmt.Errorf("tests need ZooKeeper (make servers, or Debian: apt-get install zookeeper default-jre-headless): %w", err)
		}
	}
	args := append([]string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dzookeeper.forceSync=no", "-cp", s.jars,
	}, s.args...)
	args = append(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.dir, "zoo.cfg"))
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("java", args...) //nolint:noctx // ended by kill
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("tests need java (Debian: apt-get install default-jre-headless): %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says why
		close(ended)
	}()
	s.mu.Lock()
	s.cmd, s.ended = cmd, ended
	s.mu.Unlock()
	return nil
}

func (s *server) start() error {
	if err := s.begin(); err != nil {
		return err
	}
	return s.ready()
}

// ready waits until the server serves.
func (s *server) ready() error {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case <-ended: // or the port is taken
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the server ended: %s", log)
		case <-poll.C:
			if s.mode() != "" && strings.Contains(s.word("conf"), s.dir) {
				return nil
			}
		}
	}
	s.kill()
	return errors.New("the server does not serve")
}

// word asks the server one of its four-letter questions.
func (s *server) word(word string) string {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.addr())
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte(word)); err != nil {
		return ""
	}
	var answer strings.Builder
	buffer := make([]byte, 1<<12)
	for {
		n, err := conn.Read(buffer)
		answer.Write(buffer[:n])
		if err != nil {
			return answer.String()
		}
	}
}

// mode is leader, follower or standalone; "" if it does not serve.
func (s *server) mode() string {
	_, rest, _ := strings.Cut(s.word("srvr"), "Mode: ")
	mode, _, _ := strings.Cut(rest, "\n")
	return mode
}

// counter is one of the figures of mntr.
func (s *server) counter(name string) int {
	for line := range strings.Lines(s.word("mntr")) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); key == name {
			n, _ := strconv.Atoi(value)
			return n
		}
	}
	return -1
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }
func (s *server) url() string  { return "zookeeper://" + s.addr() + "/holdfast" }

// kill ends it as a crash does.
func (s *server) kill() {
	s.mu.Lock()
	cmd, ended := s.cmd, s.ended
	s.cmd = nil
	s.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-ended
	}
}

func (s *server) signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(sig); err != nil {
		tb.Fatal(err)
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
func ownServer(tb testing.TB) *server {
	tb.Helper()
	s, err := launch(nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.remove)
	return s
}
