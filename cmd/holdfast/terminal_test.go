package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// terminal is a pseudo terminal with a program on it.
type terminal struct {
	*process
	t      *testing.T
	master *os.File
	screen *buffer
}

// onTerminal starts a program as the leader of a session with a terminal, as a
// login would.
func (s *shop) onTerminal(name string, args ...string) *terminal {
	s.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	var number, unlock int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(arg))); e != 0 {
			s.t.Fatal(e)
		}
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	cmd.Env = s.command().Env
	cmd.Env = append(cmd.Env, "PS1=ready> ", "TERM=dumb", "HOLDFAST="+binary)
	cmd.Dir = s.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	term := &terminal{process: s.launch(cmd), t: s.t, master: master, screen: newBuffer()}
	_ = slave.Close()
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			_, _ = term.screen.Write(b[:n])
		}
	}()
	s.t.Cleanup(func() { _ = master.Close() })
	return term
}

func (term *terminal) keys(text string) {
	term.t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		term.t.Fatal(err)
	}
}

// shows waits for a text on the screen, and forgets the screen up to it.
func (term *terminal) shows(text string) {
	term.t.Helper()
	defer func() {
		if term.t.Failed() {
			term.t.Logf("screen: %q", term.screen)
		}
	}()
	poll(term.t, fmt.Sprintf("%q on the screen", text), func() bool {
		term.screen.mu <- struct{}{}
		defer func() { <-term.screen.mu }()
		before, _, found := bytes.Cut(term.screen.buf.Bytes(), []byte(text))
		if found {
			term.screen.buf.Next(len(before) + len(text))
		}
		return found
	})
}

func TestTerminalIsTheCommands(t *testing.T) {
	s := newShop(t)
	term := s.onTerminal("sh", "-c", `$HOLDFAST run L -- sh -c 'trap "echo got INT" INT; echo up; while ! read x; do :; done; echo read $x; read x; exit 4'; echo status $?; read y; echo then $y`)
	term.shows("up")
	term.keys("\x03")
	term.shows("got INT")
	term.keys("hello\n")
	term.shows("read hello")
	term.keys("again\n")
	term.shows("status 4")
	term.keys("more\n")
	term.shows("then more") // the shell can read: it has its terminal back
	term.wait()
}

// An interactive program may get many a ^C: they are no second signals to us.
func TestInterruptsOnATerminal(t *testing.T) {
	s := newShop(t)
	term := s.onTerminal("sh", "-c", `$HOLDFAST run L -- sh -c 'trap "echo got INT" INT; echo up; while ! read x; do :; done; echo end'; echo status $?`)
	term.shows("up")
	for range 4 {
		term.keys("\x03")
		term.shows("got INT")
	}
	term.keys("x\n")
	term.shows("status 0")
	term.wait()
}

// Whatever dies, the shell has its terminal back.
func TestTerminalComesBack(t *testing.T) {
	for _, who := range []string{"wrapper", "guard", "command"} {
		t.Run(who, func(t *testing.T) {
			s := newShop(t)
			term := s.onTerminal("sh", "-c", `$HOLDFAST run L -- sh -c 'echo up; sleep 300'; echo status $?; while ! read y; do sleep 0.05; done; echo then $y`)
			term.shows("up")
			wrapper := child(term.Process.Pid)
			guard := child(wrapper)
			_ = syscall.Kill(map[string]int{"wrapper": wrapper, "guard": guard, "command": child(guard)}[who], syscall.SIGKILL)
			term.shows("status 137")
			poll(t, "the terminal", func() bool { return foreground(term.master) == term.Process.Pid })
			term.keys("more\n")
			term.shows("then more")
			term.wait()
		})
	}
}

func foreground(master *os.File) int {
	var group int32
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	return int(group)
}

// ^Z stops the job, fg and bg go on with it, as without us.
func TestJobControl(t *testing.T) {
	s := newShop(t)
	term := s.onTerminal("bash", "--norc", "--noprofile", "-i")
	term.shows("ready> ")
	term.keys(`$HOLDFAST run L -- sh -c 'echo "u"p; while read x; do echo "read" $x; done'` + "\n")
	term.shows("up")
	term.keys("one\n")
	term.shows("read one")
	term.keys("\x1a")
	term.shows("Stopped")
	term.shows("ready> ")
	term.keys("echo shell\n")
	term.shows("shell")
	term.shows("shell")
	if !s.busy("L") {
		t.Error("the lock is free while the job is stopped")
	}
	term.keys("fg\n")
	term.shows("read x") // bash shows the line
	term.keys("two\n")
	term.shows("read two")
	term.keys("\x04")
	term.shows("ready> ")
	term.keys("exit\n")
	term.wait()
}

// A background job that reads stops until it is in the foreground.
func TestBackgroundJobReads(t *testing.T) {
	s := newShop(t)
	term := s.onTerminal("bash", "--norc", "--noprofile", "-i")
	term.shows("ready> ")
	term.keys(`$HOLDFAST run L -- sh -c 'read x; echo "read" $x' &` + "\n")
	term.shows("ready> ")
	poll(t, "the stop", func() bool {
		term.keys("\n")
		return strings.Contains(term.screen.String(), "Stopped")
	})
	term.keys("fg\n")
	term.shows("read x")
	term.keys("one\n")
	term.shows("read one")
	term.keys("exit\n")
	term.wait()
}

// In a pipeline the others need the terminal too.
func TestPipelineOnATerminal(t *testing.T) {
	s := newShop(t)
	term := s.onTerminal("bash", "--norc", "--noprofile", "-i")
	term.shows("ready> ")
	term.keys(`$HOLDFAST run L -- sh -c 'echo "u"p; sleep 300' | sh -c 'read v; echo "pa"ger $v; read k </dev/tty; echo "ke"y $k'` + "\n")
	term.shows("pager up")
	term.keys("q\n")
	term.shows("key q")
	term.keys("\x03") // and ^C ends the job
	term.shows("ready> ")
	poll(t, "the job's end", func() bool { return !s.busy("L") })
	// One that asks for the terminal in a pipeline gets it.
	term.keys(`$HOLDFAST run L -- sh -c 'read k </dev/tty; echo "ke"y $k' | cat` + "\n")
	term.shows("| cat")
	term.keys("r\n")
	term.shows("key r")
	term.keys("exit\n")
	term.wait()
}

// Without a shell that could continue us, ^Z stops nothing for ever.
func TestStopWithoutJobControl(t *testing.T) {
	s := newShop(t)
	term := s.onTerminal(binary, "run", "L", "--", "sh", "-c", `echo up; while read x; do echo read $x; done; exit 5`)
	term.shows("up")
	term.keys("\x1a")
	term.keys("one\n")
	term.shows("read one")
	term.keys("\x04")
	term.process.wait().want(t, 5)
}

func TestWaitOnATerminal(t *testing.T) {
	s := newShop(t)
	s.start("run", "--label", "web1/job[77]", "L", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	term := s.onTerminal(binary, "run", "--wait", "5s", "L", "--", "true")
	term.shows("for L: held by web1/job[77] for ")
	term.shows("\r\x1b[K")
	term.process.wait().want(t, 76)
}
