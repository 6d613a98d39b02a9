package drivertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The environment of a process that a case started: what Self was given, and
// that it is to do nothing but live for a while.
const (
	envStore = "HOLDFAST_DRIVERTEST_STORE"
	envIdle  = "HOLDFAST_DRIVERTEST_IDLE"
)

// Self is a Harness.Spawn that runs this test binary again. arg is what Main's
// open is called with there, e.g. a URL or a folder.
func Self(arg string) func(context.Context) *exec.Cmd {
	return func(ctx context.Context) *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		cmd := exec.CommandContext(ctx, self) //nolint:gosec // ourselves
		cmd.Env = append(os.Environ(), envStore+"="+arg)
		return cmd
	}
}

// Main is called first in TestMain. In a process that a case has started it
// acts on what the case says to its standard input, and exits; in any other it
// does nothing.
func Main(open func(ctx context.Context, arg string) (driver.Store, error)) {
	if os.Getenv(envIdle) != "" {
		time.Sleep(time.Minute) //nolint:forbidigo // to live for a while is all that this process does
		os.Exit(0)
	}
	arg, ok := os.LookupEnv(envStore)
	if !ok {
		return
	}
	if err := act(open, arg, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "drivertest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// act reads commands, one a line, and answers each with a line.
func act(open func(context.Context, string) (driver.Store, error), arg string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	store, err := open(ctx, arg)
	if err != nil {
		return err
	}
	c, err := holdfast.New(store, &holdfast.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	a := actor{client: c}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := strings.Fields(lines.Text())
		answer, err := a.do(ctx, words)
		if err != nil {
			answer = "error " + kindWord(err)
		}
		fmt.Fprintln(out, answer)
	}
	return c.Close()
}

// actor is the other process: a client, and the lease that it has.
type actor struct {
	client *holdfast.Client
	lease  *holdfast.Lease
}

func (a *actor) do(ctx context.Context, words []string) (answer string, err error) {
	switch words[0] {
	case "lock": // NAME TTL
		ttl, parseErr := time.ParseDuration(words[2])
		if parseErr != nil {
			return "", parseErr
		}
		a.lease, err = a.client.Acquire(ctx, words[1], &holdfast.AcquireOptions{TTL: ttl})
		return "held", err
	case "try": // NAME
		a.lease, err = a.client.TryAcquire(ctx, words[1], nil)
		return "held", err
	case "valid":
		valid := a.lease.Valid()
		if works := a.lease.Context().Err() == nil; works && !valid {
			return "", errors.New("its context has not ended although it is not valid")
		}
		return strconv.FormatBool(valid), nil
	case "renew": // TTL
		ttl, parseErr := time.ParseDuration(words[1])
		if parseErr != nil {
			return "", parseErr
		}
		return "renewed", a.lease.Renew(ctx, ttl)
	case "check":
		return "checked", a.lease.Check(ctx)
	case "release":
		return "released", a.lease.Release(ctx)
	case "count": // NAME FILE TIMES
		return "counted", a.count(ctx, words[1], words[2], words[3])
	case "child":
		return startIdle()
	}
	return "", fmt.Errorf("no such command: %v", words)
}

// count adds one to the number in a file, under the lock, again and again.
func (a *actor) count(ctx context.Context, name, file, times string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	for range n {
		err := a.client.Do(ctx, name, nil, func(context.Context, *holdfast.Lease) error { return addOne(file) })
		if err != nil {
			return err
		}
	}
	return nil
}

// addOne reads, waits a moment, and writes: two at once lose one.
func addOne(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	time.Sleep(100 * time.Microsecond) //nolint:forbidigo // the moment in which another would do harm
	return os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
}

// startIdle starts a child that lives for a while, as a program does that knows
// nothing of locks, and answers its process id.
func startIdle() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(self) //nolint:noctx // it must outlive us
	cmd.Env = append(os.Environ(), envIdle+"=1")
	if err := cmd.Start(); err != nil {
		return "", err
	}
	return strconv.Itoa(cmd.Process.Pid), nil
}

// kindWord is an error in one word, for the line.
func kindWord(err error) string {
	for _, k := range []struct {
		kind error
		word string
	}{
		{holdfast.ErrHeld, "held"},
		{holdfast.ErrLost, "lost"},
		{holdfast.ErrReleased, "released"},
		{holdfast.ErrUnavailable, "unavailable"},
		{holdfast.ErrIndeterminate, "indeterminate"},
	} {
		if errors.Is(err, k.kind) {
			return k.word
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
