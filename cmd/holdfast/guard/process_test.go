package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The guard must be up before the rest of the program is: what this package
// imports comes before it.
func TestImportsStaySmall(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		for _, heavy := range []string{"fmt", "net", "context", "os/signal", "log", "flag", "crypto"} {
			if pkg == heavy || strings.HasPrefix(pkg, heavy+"/") {
				t.Errorf("imports %s", pkg)
			}
		}
	}
}

func TestReadProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a) S 1 (")
	if err := os.Symlink("/bin/sleep", name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	poll(t, "the name", func() bool {
		p, ok := readProcess(cmd.Process.Pid)
		return ok && p.name == "a) S 1 (" && p.parent == os.Getpid()
	})
	if _, ok := readProcess(1 << 30); ok {
		t.Error("a process that is none")
	}
}

func TestMessages(t *testing.T) {
	want := message{kindEnd, [2]int64{-1, 1 << 62}, "text\x00more"}
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := decode(b); !ok || got != want {
		t.Errorf("got %+v", got)
	}
	if _, ok := decode(b[:16]); ok {
		t.Error("a short message was read")
	}
	if _, err := (message{text: strings.Repeat("x", maxMessage)}).encode(); err == nil {
		t.Error("a huge message was written")
	}
}
