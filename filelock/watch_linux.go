package filelock

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// The kinds of wake-ups. A holder who dies or lets go writes or closes the
// file; one that loses its name changes its count of names.
const (
	wakeOnRemoval = syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
	wakeOnRelease = wakeOnRemoval | syscall.IN_MODIFY | syscall.IN_CLOSE_WRITE
)

// watcher rings waiters when something happens to a file, by inotify(7): the
// kernel keeps no queue for "any of these locks is free", and a wait for that
// can be cancelled at once. Rings are hints: they may come early, for nothing,
// or not at all where the user has no watches left; waiters look by themselves
// too.
type watcher struct {
	mu      sync.Mutex
	inotify *os.File // nil until the first watch
	failed  bool     // or closed
	done    chan struct{}
	bells   map[int32][]*bell
}

// bell is one waiter's.
type bell struct {
	w     *watcher
	id    int32 // -1: none
	rings chan struct{}
}

// watch begins to watch an open file. It never fails: at worst nothing rings.
func (w *watcher) watch(fd int, events uint32) *bell {
	b := &bell{w: w, id: -1, rings: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inotify == nil && !w.failed {
		w.open()
	}
	if w.failed {
		return b
	}
	// By descriptor: the path may lead to another file by now.
	id, err := w.add(fmt.Sprintf("/proc/self/fd/%d", fd), events|syscall.IN_MASK_ADD)
	if err != nil {
		return b
	}
	b.id = int32(id) //nolint:gosec // the kernel's ids have 32 bits
	w.bells[b.id] = append(w.bells[b.id], b)
	return b
}

func (w *watcher) add(path string, events uint32) (id int, err error) {
	raw, err := w.inotify.SyscallConn()
	if err != nil {
		return 0, err
	}
	control := raw.Control(func(fd uintptr) { id, err = syscall.InotifyAddWatch(int(fd), path, events) })
	if control != nil {
		err = control
	}
	return id, err
}

func (w *watcher) open() {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		w.failed = true
		return
	}
	w.inotify = os.NewFile(uintptr(fd), "inotify")
	w.bells = map[int32][]*bell{}
	w.done = make(chan struct{})
	go w.read(w.inotify)
}

// read rings until the descriptor is closed.
func (w *watcher) read(inotify *os.File) {
	defer close(w.done)
	buf := make([]byte, 16*1024)
	for {
		n, err := inotify.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			id := int32(binary.NativeEndian.Uint32(b)) //nolint:gosec // as the kernel has it
			events, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
			b = b[min(syscall.SizeofInotifyEvent+int(size), len(b)):]
			w.ring(id, events)
		}
		w.mu.Unlock()
	}
}

func (w *watcher) ring(id int32, events uint32) {
	if events&syscall.IN_Q_OVERFLOW != 0 {
		for _, bells := range w.bells {
			ringAll(bells)
		}
		return
	}
	ringAll(w.bells[id])
	if events&syscall.IN_IGNORED != 0 { // the file is gone; the kernel may use the id again
		for _, b := range w.bells[id] {
			b.id = -1
		}
		delete(w.bells, id)
	}
}

func ringAll(bells []*bell) {
	for _, b := range bells {
		select {
		case b.rings <- struct{}{}:
		default:
		}
	}
}

// stop ends the watch. A nil bell may be stopped.
func (b *bell) stop() {
	if b == nil {
		return
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.id < 0 || b.w.failed {
		return
	}
	rest := b.w.bells[b.id]
	for i := range rest {
		if rest[i] == b {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if len(rest) > 0 {
		b.w.bells[b.id] = rest
		return
	}
	delete(b.w.bells, b.id)
	if raw, err := b.w.inotify.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = syscall.InotifyRmWatch(int(fd), uint32(b.id)) }) //nolint:gosec // ids are positive
	}
}

// ringing is the bell's channel; a nil bell never rings.
func (b *bell) ringing() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.rings
}

// patience is how long its waiter may go without a look of his own.
func (b *bell) patience() time.Duration {
	if b == nil {
		return lastLook
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.id < 0 {
		return lastLook
	}
	return lastLookWoken
}

func (w *watcher) close() {
	w.mu.Lock()
	inotify := w.inotify
	w.failed = true
	w.mu.Unlock()
	if inotify != nil {
		_ = inotify.Close()
		<-w.done
	}
}
