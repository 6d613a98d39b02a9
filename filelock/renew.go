//go:build linux || darwin

package filelock

import (
	"context"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Store]. A hold lives as long as its process: so
// there is nothing to extend, but a person may have removed or replaced the
// file, or broken the hold.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	out := make([]driver.RenewResult, len(reqs))
	for i := range reqs {
		if err := s.begin(ctx); err != nil {
			out[i].Err = err
			continue
		}
		out[i] = s.renew(&reqs[i])
	}
	return out
}

func (s *store) renew(req *driver.RenewRequest) driver.RenewResult {
	// The file may not be closed, or granted anew, under our eyes: a Release
	// with Abandon may come at any time.
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.held[req.Owner]
	if f == nil || !f.is(&req.Ref) {
		return driver.RenewResult{Status: driver.Lost}
	}
	r, err := f.revocation()
	if err != nil {
		return driver.RenewResult{Err: err}
	}
	named, err := f.named()
	switch {
	case err != nil:
		return driver.RenewResult{Err: err}
	case !named:
		f.verified = time.Time{} // Release is to look too
		return driver.RenewResult{Status: driver.Lost, Reason: reason(r)}
	case r != nil && r.force:
		return driver.RenewResult{Status: driver.Lost, Reason: r.reason}
	case r != nil:
		return driver.RenewResult{Status: driver.Broken, Reason: r.reason}
	}
	if req.Label != "" && req.Label != f.label {
		if err := f.relabel(req.Label); err != nil {
			return driver.RenewResult{Err: err}
		}
	}
	return driver.RenewResult{Status: driver.Renewed}
}

func reason(r *revocation) string {
	if r == nil {
		return ""
	}
	return r.reason
}

// relabel writes another label into the record.
func (f *file) relabel(label string) error {
	f.label = label
	f.quoted = quote(label, entrySize-1-entryLabel)
	f.putEntry()
	return f.write(f.state[headerSize:], f.entryAt())
}

func (f *file) entryAt() int64 {
	if f.slot == 0 {
		return headerSize
	}
	return slotAt(f.slot)
}

// revocation returns the break of this very hold, nil if there is none.
func (f *file) revocation() (*revocation, error) {
	var b [breakSize]byte
	n, err := syscall.Pread(f.fd, b[:], f.entryAt()+entrySize)
	if err != nil {
		return nil, f.failure("read", err)
	}
	r, ok := parseBreak(b[:n])
	if !ok || r.token != f.token || r.owner != f.owner {
		return nil, nil //nolint:nilnil // nil is an answer
	}
	return &r, nil
}
