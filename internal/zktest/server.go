// Package zktest starts real ZooKeeper servers for tests and benchmarks: on free
// loopback ports, in folders of their own, and ended with the process.
package zktest

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
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Version is the jars that a server is made of: a class path, or a folder below
// .tools.
type Version string

// The versions. Both come by `make servers`, Newer only for `make test-full`.
const (
	Debian Version = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar" // 3.8.0
	Newer  Version = "zookeeper-3.9.5"
)

// classPath finds the version's jars.
func (v Version) classPath() (string, error) {
	if strings.HasPrefix(string(v), "/") {
		return string(v), nil
	}
	dir, err := testserver.Tool(string(v))
	return filepath.Join(dir, "*"), err
}

// Tick is the servers' unit of time: sessions are at least two of it, and end up
// to one late.
const Tick = 200 * time.Millisecond

// Server is one ZooKeeper.
type Server struct {
	Port    int
	Dir     string
	version Version
	java    []string // arguments of java

	process testserver.Process
}

func newServer(v Version) (*Server, error) {
	dir, err := testserver.Folder("zktest")
	s := &Server{Dir: dir, version: v, Port: testserver.FreePort()}
	s.process.Log = filepath.Join(dir, "log")
	return s, err
}

// Start starts a lone server, with arguments of java's.
func Start(v Version, java ...string) (*Server, error) {
	var last error
	for range 20 { // the port may be taken meanwhile
		s, err := newServer(v)
		if err != nil {
			return nil, err
		}
		s.java = java
		if err = s.configure(); err == nil {
			err = s.Start()
		}
		if err == nil {
			return s, nil
		}
		s.Remove()
		if last = err; errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	return nil, last
}

func (s *Server) configure(lines ...string) error {
	config := append([]string{
		fmt.Sprintf("tickTime=%d", Tick.Milliseconds()), "dataDir=" + filepath.Join(s.Dir, "data"), fmt.Sprintf("clientPort=%d", s.Port),
		"clientPortAddress=127.0.0.1", "admin.enableServer=false", "4lw.commands.whitelist=*", "maxClientCnxns=0",
		"minSessionTimeout=400", "maxSessionTimeout=120000",
	}, lines...)
	return os.WriteFile(filepath.Join(s.Dir, "zoo.cfg"), []byte(strings.Join(config, "\n")+"\n"), 0o600)
}

// Begin starts the server with its data, and does not wait until it serves.
func (s *Server) Begin() error {
	classPath, err := s.version.classPath()
	if err != nil {
		return err
	}
	for jar := range strings.SplitSeq(classPath, ":") {
		if _, err = os.Stat(strings.TrimSuffix(jar, "/*")); err != nil {
			return fmt.Errorf("tests need ZooKeeper (make servers, or Debian: apt-get install zookeeper default-jre-headless): %w", err)
		}
	}
	args := append([]string{ // the first compiler alone: a test's servers are young, and compiling would take the processors from all others
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no", "-cp", classPath,
	}, s.java...)
	args = append(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.Dir, "zoo.cfg"))
	if err := s.process.Begin(exec.Command("java", args...)); err != nil { //nolint:noctx // ended by Kill
		return fmt.Errorf("tests need java (Debian: apt-get install default-jre-headless): %w", err)
	}
	return nil
}

// Start is Begin, and waits until the server serves.
func (s *Server) Start() error {
	if err := s.Begin(); err != nil {
		return err
	}
	return s.process.Await(func() bool { return s.Mode() != "" && strings.Contains(s.Word("conf"), s.Dir) })
}

// Word asks the server one of its four-letter questions; "" if it does not
// answer.
func (s *Server) Word(word string) string {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.Addr())
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
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

// Mode is leader, follower or standalone; "" if it does not serve.
func (s *Server) Mode() string {
	_, rest, _ := strings.Cut(s.Word("srvr"), "Mode: ")
	mode, _, _ := strings.Cut(rest, "\n")
	return mode
}

// Counter is one of the figures of mntr; -1 if it is not told.
func (s *Server) Counter(name string) int {
	for line := range strings.Lines(s.Word("mntr")) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); key == name {
			n, _ := strconv.Atoi(value)
			return n
		}
	}
	return -1
}

// Addr is where clients reach it, URL how ours do.
func (s *Server) Addr() string { return testserver.Addr(s.Port) }

// URL opens it, under the root /holdfast.
func (s *Server) URL() string { return "zookeeper://" + s.Addr() + "/holdfast" }

// Kill ends it as a crash does.
func (s *Server) Kill() { s.process.Kill() }

// Signal sends it a signal, if it runs.
func (s *Server) Signal(sig syscall.Signal) error { return s.process.Signal(sig) }

// Restart kills it and starts it again with its data.
func (s *Server) Restart() error {
	s.Kill()
	return s.Start()
}

// Remove ends it and deletes its data.
func (s *Server) Remove() {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}
