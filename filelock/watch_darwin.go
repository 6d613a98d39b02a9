package filelock

import "time"

const (
	wakeOnRemoval = 0
	wakeOnRelease = 0
)

// watcher rings nobody here: waiters look by themselves.
type watcher struct{}

type bell struct{ rings chan struct{} }

func (*watcher) watch(int, uint32) *bell { return &bell{} }
func (*watcher) close()                  {}

func (*bell) stop()                    {}
func (*bell) ringing() <-chan struct{} { return nil }
func (*bell) patience() time.Duration  { return lastLook }
