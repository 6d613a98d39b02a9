package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/guard"
)

// signals are those that the command is to get. Until there is a command, the
// ones that would have ended us call a wait off.
type signals struct {
	ch chan os.Signal
}

var forwarded = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// catchSignals catches them, but those that whoever started us lets us
// ignore (nohup, a shell's background job): the command ignores them as well.
// A reader of our words who has gone does not end us: a command runs, or there
// is something to give back.
func catchSignals() *signals {
	s := &signals{make(chan os.Signal, 64)}
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(s.ch, sig)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

func (s *signals) stop() { signal.Stop(s.ch) }

// signalError is the cause of a context that a signal ended.
type signalError syscall.Signal

func (e signalError) Error() string { return "interrupted by " + syscall.Signal(e).String() }

// ending tells whether a signal ends a program that does not catch it.
func ending(sig os.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// context ends when a signal comes that would have ended us. done ends it too;
// a signal that comes later is for the next who listens.
func (s *signals) context() (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case sig := <-s.ch:
				if n, ok := sig.(syscall.Signal); ok && ending(sig) {
					cancel(signalError(n))
				}
				if sig == syscall.SIGTSTP {
					suspend(syscall.SIGTSTP)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-stopped
	}
}

// settle is how long a stop takes to have its effect.
const settle = 100 * time.Millisecond

// suspend stops our process group, as the terminal would have if we did not
// catch its signal. It returns when somebody has continued us, or when the
// kernel does not stop us since no shell could continue us.
func suspend(sig syscall.Signal) {
	guard.StopGroup(sig, func() { <-time.After(settle) })
}
