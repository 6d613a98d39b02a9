//go:build linux || darwin

package filelock

import (
	"os"

	"github.com/holdfast-go/holdfast/driver"
)

// Inherit implements [driver.Inheritor]. A duplicate keeps the name taken when
// its holder has died, but not when he has released it.
func (s *store) Inherit(owner driver.Owner) ([]*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.errClosed()
	}
	f := s.held[owner]
	if f == nil {
		return nil, failf(driver.Invalid, "inherit: this owner holds nothing here")
	}
	fd, err := duplicate(f.fd)
	if err != nil {
		return nil, f.failure("duplicate", err)
	}
	// Whoever has the duplicate could lock and unlock what a later hold of this
	// descriptor is: so there will be none.
	f.inherited = true
	return []*os.File{os.NewFile(uintptr(fd), f.path)}, nil
}
