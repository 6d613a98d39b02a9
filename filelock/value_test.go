//go:build linux

package filelock

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// The longest name and the longest value fit their blocks, however they are
// quoted, and do not touch each other.
func TestLongestNameAndValue(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir(), nil)
	req := request("k", driver.Exclusive)
	req.Name.Full, req.Name.Prefix = strings.Repeat("\x01", 512), strings.Repeat("a", 64)
	res, err := s.Acquire(t.Context(), req)
	if err != nil || res.Status != driver.Granted {
		t.Fatal(res, err)
	}
	text := strings.Repeat("\u00ad", driver.MaxValue/2)
	ref := driver.Ref{Name: req.Name, Owner: req.Owner, Token: res.Grant.Token}
	if held, err := s.SetValue(t.Context(), &driver.ValueRequest{Ref: ref, Seq: 1, Value: text}); err != nil || !held {
		t.Fatal(held, err)
	}
	if h, err := s.Leader(t.Context(), req.Name); err != nil || h == nil || h.Value != text {
		t.Fatalf("%+v %v", h, err)
	}
	found := false
	for r, err := range s.List(t.Context(), req.Name.Prefix) {
		found = err == nil && r.Name == req.Name.Full && r.Holders[0].Value == text
	}
	if !found {
		t.Error("the name is not listed, or without its value")
	}
}

// A value that is torn, or of a former holder, says nothing.
func TestTornValue(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir(), nil)
	req := request("k", driver.Exclusive)
	res, err := s.Acquire(t.Context(), req)
	if err != nil || res.Status != driver.Granted {
		t.Fatal(res, err)
	}
	ref := driver.Ref{Name: req.Name, Owner: req.Owner, Token: res.Grant.Token}
	if held, err := s.SetValue(t.Context(), &driver.ValueRequest{Ref: ref, Seq: 1, Value: "said"}); err != nil || !held {
		t.Fatal(held, err)
	}
	file, err := os.OpenFile(s.path+"/k.lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt([]byte("x"), valueOffset+int64(valueText)+2); err != nil {
		t.Fatal(err)
	}
	if h, err := s.Leader(t.Context(), req.Name); err != nil || h == nil || h.Value != "" || h.Seq != 0 {
		t.Errorf("%+v %v", h, err)
	}
}
