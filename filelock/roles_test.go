//go:build linux

package filelock

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// child is another process that plays a role.
type child struct {
	tb  testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func command(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...) //nolint:noctx // killed by the cleanup
	cmd.Env = append(os.Environ(), "FILELOCK_TEST_ROLE="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func start(tb testing.TB, cmd *exec.Cmd) *child {
	tb.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ch := &child{tb, cmd, in, bufio.NewReader(out)}
	tb.Cleanup(ch.kill)
	return ch
}

func (ch *child) kill() {
	if ch.cmd.ProcessState == nil {
		_ = ch.cmd.Process.Kill()
		_ = ch.cmd.Wait()
	}
}

// say sends a line and returns the answer.
func (ch *child) say(line string) string {
	ch.tb.Helper()
	if line != "" {
		if _, err := io.WriteString(ch.in, line+"\n"); err != nil {
			ch.tb.Fatal(err)
		}
	}
	answer, err := ch.out.ReadString('\n')
	if err != nil {
		ch.tb.Fatalf("the child said nothing: %v", err)
	}
	return strings.TrimSpace(answer)
}

func runRole(role string, args []string) int {
	switch role {
	case "holder": // dir, key, mode, url parameters: acquires, then obeys lines
		return playHolder(args[0], args[1], args[2], len(args) > 3)
	case "counter": // dir, counter file, rounds
		return playCounter(args[0], args[1], args[2])
	case "contender": // dir, how
		return playContender(args[0], args[1])
	case "descriptors":
		return playDescriptors()
	case "hung": // dir
		return playHung(args[0])
	case "default": // two parents: tells the default directory
		dir, err := defaultDir(args[0], args[1], os.Getuid())
		fmt.Fprintln(os.Stdout, dir, err)
		return 0
	case "sleeper": // keeps what it inherited until its input ends
		fmt.Fprintln(os.Stdout, "ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	return 64
}

func playHolder(dir, key, mode string, shared bool) int {
	s, err := New(dir, &Options{Shared: shared})
	if err != nil {
		fmt.Fprintf(os.Stdout, "error %s %v\n", driver.KindOf(err), err)
		return 1
	}
	req := request(key, map[string]driver.Mode{"x": driver.Exclusive, "s": driver.Shared, "p": driver.Permits}[mode], 1, 3)
	res, err := s.Acquire(context.Background(), req)
	if err != nil {
		fmt.Fprintf(os.Stdout, "error %s %v\n", s.Classify(err), err)
		return 1
	}
	fmt.Fprintf(os.Stdout, "%d %s %d\n", res.Status, hex.EncodeToString(req.Owner[:]), res.Grant.Token)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		ref := driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: res.Grant.Token}
		switch lines.Text() {
		case "renew":
			r := s.Renew(context.Background(), []driver.RenewRequest{{Ref: ref}})[0]
			fmt.Fprintf(os.Stdout, "%d %s %v\n", r.Status, r.Reason, r.Err)
		case "release":
			ok, err := s.Release(context.Background(), &driver.ReleaseRequest{Ref: ref})
			fmt.Fprintln(os.Stdout, ok, err)
		}
	}
	return 0
}

// playCounter adds to a number in a file, which only exclusion keeps right.
func playCounter(dir, path, rounds string) int {
	st, err := New(dir, &Options{IdleFiles: 1, IdleDescriptors: 2}) // sweeps what is idle for a nanosecond
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	s := st.(*store) //nolint:errcheck // New makes no other
	n, _ := strconv.Atoi(rounds)
	last := uint64(0)
	for i := range n {
		req := request("counter", driver.Exclusive)
		g, err := s.Block(context.Background(), req)
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			return 1
		}
		if g.Token <= last {
			fmt.Fprintln(os.Stdout, "token fell:", g.Token, last)
			return 1
		}
		last = g.Token
		if err := addOne(path, g.Token); err != nil {
			fmt.Fprintln(os.Stdout, err)
			return 1
		}
		ref := driver.Ref{Name: req.Name, Owner: req.Owner, Token: g.Token}
		if ok, err := s.Release(context.Background(), &driver.ReleaseRequest{Ref: ref}); !ok || err != nil {
			fmt.Fprintln(os.Stdout, "release", ok, err)
			return 1
		}
		if i%3 == 0 {
			s.sweep(context.Background(), 1)
		}
	}
	fmt.Fprintln(os.Stdout, "done")
	return 0
}

func addOne(path string, token uint64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var n int
	var last uint64
	if _, err := fmt.Sscan(string(b), &n, &last); err != nil {
		return fmt.Errorf("counter %q: %w", b, err)
	}
	if token <= last {
		return fmt.Errorf("token %d after %d", token, last)
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%d %d", n+1, token), 0o600)
}

// playDescriptors lists the files that it has open.
func playDescriptors() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		fmt.Fprint(os.Stdout, target, " ")
	}
	fmt.Fprintln(os.Stdout)
	return 0
}
