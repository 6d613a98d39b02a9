//go:build linux || darwin

package filelock

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Options are the settings of a store. nil and the zero value mean the
// defaults.
type Options struct {
	// Create makes the directory if it is missing and its parent exists: mode
	// 0700, or 1777 with Shared. Without it a missing directory is an error.
	Create bool
	// Shared lets other users lock here too: the files get mode 0666 whatever
	// the umask says. Without it they get 0600, and the name of another user's
	// file answers Denied.
	Shared bool
	// AllowNetwork accepts a directory on a network file system, where the
	// locks may not reach other machines, or may be dropped by the server: the
	// store is then of class D and warns.
	AllowNetwork bool
	// IdleFiles is how long a file stays after its name was last granted
	// before it is removed. Default 10 minutes.
	IdleFiles time.Duration
	// IdleDescriptors bounds how many descriptors of names that are not held
	// are kept open. Default 128.
	IdleDescriptors int
}

const (
	defaultIdleFiles       = 10 * time.Minute
	defaultIdleDescriptors = 128
	// maxKeyBytes leaves room for the suffix within the usual 255 bytes.
	maxKeyBytes = 200
)

// store is the driver.
//
// Goroutines: one reads inotify while somebody waits (watcher), one removes
// idle files (sweeper); both end with Close, which waits for them. One for
// each name that is waited for at its gate blocks in the kernel (gateWait).
type store struct {
	opts  Options
	path  string // of the directory: absolute, so that chdir changes nothing
	dir   atomic.Pointer[directory]
	props driver.Properties

	// The same moment on three clocks: see clock.
	originTime time.Time
	originBoot driver.Instant

	watcher watcher
	sweeper sweeper

	done chan struct{} // closed by Close

	mu     sync.Mutex
	closed bool
	held   map[driver.Owner]*file
	gone   tombstones
	waits  map[driver.Owner]*wait
	idle   cache
	ghosts map[string]*gateWait // abandoned by a cancelled Block, by key
	parked int                  // goroutines blocked in the kernel
	old    []*directory         // directories that were replaced under us
}

var (
	_ driver.Store     = (*store)(nil)
	_ driver.Blocker   = (*store)(nil)
	_ driver.Lister    = (*store)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
	_ driver.Inheritor = (*store)(nil)
)

// New opens the store in a directory, which must be a real one, no symbolic
// link. A relative path counts from the present working directory. opts may be
// nil. Errors are [driver.Failure]s.
func New(dir string, opts *Options) (driver.Store, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, failf(driver.Unavailable, "directory %s: %w", dir, err)
	}
	s := &store{
		path:       path,
		originTime: time.Now(),
		originBoot: driver.Now(),
		done:       make(chan struct{}),
		held:       map[driver.Owner]*file{},
		waits:      map[driver.Owner]*wait{},
		ghosts:     map[string]*gateWait{},
	}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.IdleFiles <= 0 {
		s.opts.IdleFiles = defaultIdleFiles
	}
	if s.opts.IdleDescriptors <= 0 {
		s.opts.IdleDescriptors = defaultIdleDescriptors
	}
	s.idle.limit = s.opts.IdleDescriptors
	d, err := openDirectory(path, &s.opts)
	if err != nil {
		return nil, err
	}
	s.dir.Store(d)
	s.props = properties(d, &s.opts)
	s.sweeper.start(s)
	return s, nil
}

func properties(d *directory, opts *Options) driver.Properties {
	props := driver.Properties{
		Store: "file",
		Class: driver.ClassB,
		Bound: driver.ByConnection,
		Wait:  driver.ByParking,
		Abilities: driver.Abilities{
			Fencing: true, Shared: true, Permits: true, Break: true, List: true, Inspect: true, Value: true,
		},
		Local:   true,
		OneHost: true,
		Names:   driver.Names{MaxBytes: maxKeyBytes, Portable: true},
	}
	if d.network != "" {
		props.Class = driver.ClassD
		props.Warnings = append(props.Warnings, "the directory "+d.path+" is on "+d.network+
			": its locks may not exclude other machines, and may be dropped by its server")
	}
	if d.open && !opts.Shared {
		props.Warnings = append(props.Warnings, "the directory "+d.path+
			" can be written by other users, who can squat names there")
	}
	return props
}

// Properties implements [driver.Store].
func (s *store) Properties() driver.Properties { return s.props }

// Classify implements [driver.Store].
func (s *store) Classify(err error) driver.Kind { return driver.LocalKindOf(err) }

// Close implements [driver.Store]. It closes every descriptor without
// unlocking it: holds end, but for those whose descriptors were inherited.
//
// A goroutine that is blocked in the kernel at a gate ends when the gate is
// next freed, and takes nothing: see gateWait.
func (s *store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	for _, f := range s.held {
		f.close()
	}
	clear(s.held)
	s.idle.closeAll()
	s.mu.Unlock()

	s.sweeper.stop()
	s.watcher.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.old {
		d.close()
	}
	s.dir.Load().close()
	return nil
}

// errClosed is what calls get that Close has ended.
func (s *store) errClosed() error {
	return failf(driver.Unavailable, "the store %s is closed", s.path)
}

// clock reads the wall clock in microseconds, for tokens, and the machine's
// boot time, for ages: at the price of one reading, and as all processes of
// the machine read it.
func (s *store) clock(now time.Time) (micros uint64, boot int64) {
	return uint64(max(now.UnixMicro(), 0)), int64(s.originBoot.Add(now.Sub(s.originTime)))
}

func (s *store) fileMode() fs.FileMode {
	if s.opts.Shared {
		return 0o666
	}
	return 0o600
}

// begin makes sure that the call may run: it answers for ctx and Close.
func (s *store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.done:
		return s.errClosed()
	default:
		return nil
	}
}
