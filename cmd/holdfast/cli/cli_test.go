package cli

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// call is one call of Main in this process.
func call(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	var files [2]*os.File
	for i := range files {
		f, err := os.Create(filepath.Join(dir, []string{"out", "err"}[i]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		files[i] = f
	}
	code = Main(args, env, os.Stdin, files[0], files[1])
	var texts [2]string
	for i, f := range files {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(b)
	}
	return code, texts[0], texts[1]
}

// test:// is a lease store of this process, so the calls on it are in this one.
// (memory:// is refused: a command's process is its own.)
func init() {
	server := memlock.NewServer()
	driver.Register("test", func(context.Context, *url.URL, *driver.OpenOptions) (driver.Store, error) {
		return server.Store(), nil
	})
}

func TestHandles(t *testing.T) {
	env := []string{"HOLDFAST_STORE=test://"}
	code, out, stderr := call(t, env, "acquire", "--ttl", "1h", "it's")
	if code != 0 || !strings.HasPrefix(out, "HOLDFAST_HANDLE='") || !strings.Contains(out, `HOLDFAST_NAME='it'\''s'`) {
		t.Fatalf("acquire: %d %q %q", code, out, stderr)
	}
	handle, _, _ := strings.Cut(strings.TrimPrefix(out, "HOLDFAST_HANDLE='"), "'")
	if code, _, stderr = call(t, env, "acquire", "--wait", "0", "it's"); code != exitBusy || !strings.Contains(stderr, "held by") {
		t.Errorf("a second acquire: %d %q", code, stderr)
	}
	if code, out, _ = call(t, env, "check", "--json", handle); code != 0 || !strings.Contains(out, `"token":"`) {
		t.Errorf("check: %d %q", code, out)
	}
	if code, out, stderr = call(t, env, "renew", "--ttl", "2h", "--json", handle); code != 0 || !strings.Contains(out, `"left_ms":69`) {
		t.Errorf("renew: %d %q %q", code, out, stderr)
	}
	if code, _, stderr = call(t, append(env, "HOLDFAST_HANDLE="+handle), "release"); code != 0 {
		t.Errorf("release: %d %q", code, stderr)
	}
	if code, _, stderr = call(t, env, "check", handle); code != exitLost || !strings.HasPrefix(stderr, `holdfast: check "it's"`) {
		t.Errorf("check after release: %d %q", code, stderr)
	}
	if code, _, stderr = call(t, env, "renew", "nonsense"); code != exitUsage || !strings.HasPrefix(stderr, "holdfast: renew on ") {
		t.Errorf("renew of nonsense: %d %q", code, stderr)
	}
	if code, _, stderr = call(t, env, "acquire", "--wait", "0", "it's"); code != 0 {
		t.Errorf("after release: %d %q", code, stderr)
	}
	// B026: the old handle touches nothing of the newer hold.
	if code, _, _ = call(t, env, "release", handle); code != exitLost {
		t.Errorf("late release: %d", code)
	}
	if code, _, stderr = call(t, env, "acquire", "--wait", "0", "it's"); code != exitBusy {
		t.Errorf("after the late release: %d %q", code, stderr)
	}
}

// A handle that nobody got to know is given back.
func TestUnprintedHandleIsReleased(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if code := Main([]string{"acquire", "--ttl", "1h", "unprinted"}, []string{"HOLDFAST_STORE=test://"}, os.Stdin, full, os.Stderr); code != exitOutput {
		t.Errorf("exit status %d", code)
	}
	if code, _, stderr := call(t, []string{"HOLDFAST_STORE=test://"}, "acquire", "--wait", "0", "unprinted"); code != 0 {
		t.Errorf("%d %q", code, stderr)
	}
}

// A store that keeps a queue counts who waits; one that does not says "-".
func TestWaitersColumn(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	a := &app{out: &output{to: out}}
	a.printList([]holdfast.Record{{Name: "L", Waiters: []holdfast.Waiter{{}, {}}}}, true)
	b, err := os.ReadFile(out.Name())
	if err != nil || !strings.Contains(string(b), "L     -     0        2        -") {
		t.Errorf("%s %v", b, err)
	}
}

// The text of a loss is the reason, and who gave it, without the library's words.
func TestLossReason(t *testing.T) {
	inner := &holdfast.Error{Op: "hold", Name: "L", Kind: holdfast.ErrBroken, Err: errors.New("it (really) hangs (by ann, uid 7 on vm)")}
	for _, err := range []error{inner, &holdfast.Error{Op: "renew", Kind: holdfast.ErrBroken, Err: inner}} {
		if reason, who := lossReason(err); reason != "it (really) hangs" || who != "ann, uid 7 on vm" {
			t.Errorf("%q by %q", reason, who)
		}
	}
	if reason, who := lossReason(&holdfast.Error{Kind: holdfast.ErrLost, Err: errors.New("not renewed in time")}); reason != "not renewed in time" || who != "" {
		t.Errorf("%q by %q", reason, who)
	}
	if reason, who := lossReason(nil); reason != "" || who != "" {
		t.Errorf("%q by %q", reason, who)
	}
}

func TestHuman(t *testing.T) {
	for d, want := range map[time.Duration]string{
		24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Minute: "1m", 10 * time.Minute: "10m", 10 * time.Second: "10s",
		time.Hour + time.Second: "1h0m1s", 0: "0s", 250 * time.Millisecond: "250ms",
	} {
		if got := human(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestSecretsAreTakenOutOfURLs(t *testing.T) {
	for in, want := range map[string]string{ //nolint:gosec // made up
		"redis://u:hunter2@h:1/2?x=y":                   "redis://u@h:1/2?x=y",
		"mysql://h/db?password=hunter2&mode=session":    "mysql://h/db?mode=session",
		"redis://:hunter2@h:1/2":                        "redis://h:1/2",
		"etcds://:hunter2@h1,h2:2379":                   "etcds://h1,h2:2379",
		"zookeeper://:hunter2@h1,h2/app":                "zookeeper://h1,h2/app",
		"zookeeper://u:hunter2@h1,h2/app":               "zookeeper://u@h1,h2/app",
		"redis://:@h":                                   "redis://h",
		"redis://u@h?password-file=/etc/pw&key-file=k":  "redis://u@h?key-file=k&password-file=%2Fetc%2Fpw",
		"etcd://h?authToken=hunter2&client_secret=a":    "etcd://h",
		"file:///run/lock/x%20y":                        "file:///run/lock/x%20y",
		"redis+sentinel://a:1,b:2/master?passfile=/dev": "redis+sentinel://a:1,b:2/master",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := withoutSecrets(u); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestExitStatusOfErrors(t *testing.T) {
	of := func(kind error, causes ...error) error {
		return &holdfast.Error{Op: "acquire", Kind: kind, Err: errors.Join(causes...)}
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{of(holdfast.ErrHeld), exitBusy},
		{of(holdfast.ErrTimeout, holdfast.ErrHeld), exitTimeout},
		{of(holdfast.ErrTimeout, holdfast.ErrUnavailable), exitUnavailable},
		{of(holdfast.ErrUnavailable), exitUnavailable},
		{of(holdfast.ErrIndeterminate), exitUnavailable},
		{of(holdfast.ErrDenied), exitUnavailable},
		{of(holdfast.ErrLost), exitLost},
		{of(holdfast.ErrBroken), exitLost},
		{of(holdfast.ErrInvalid), exitUsage},
		{of(holdfast.ErrUnsupported), exitUsage},
		{of(holdfast.ErrConflict), exitUsage},
		{&holdfast.Error{Op: "open", Kind: holdfast.ErrConflict}, exitUnavailable},
		{of(holdfast.ErrNotHeld), exitNo},
		{errors.New("any other"), exitUnavailable},
	} {
		if got := exitOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"orders/42":        "orders/42",
		"zażółć 日本":        "zażółć 日本",
		"a\x1b[2Jb":        `a\x1b[2Jb`,
		"a\nb\tc":          `a\nb\tc`,
		"\u202eabc\u2066x": `\u202eabc\u2066x`,
		"back\\slash":      `back\\slash`,
		"\xff":             `\ufffd`,
		"zero\u200bwidth":  `zero\u200bwidth`,
		"it's":             "it's",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

func TestWhence(t *testing.T) {
	for label, want := range map[string]struct {
		host string
		pid  int
	}{
		"web1/sh[12]":     {"web1", 12},
		"web1/a b [x][7]": {"web1", 7},
		"web1/a/b[7]":     {}, // somebody's own: commands have no slash in ours
		"web1/sh[07]":     {},
		"web1/sh[7] late": {},
		"web1/[7]":        {},
		"web1":            {},
		"by hand":         {},
		"a b/c[1]":        {},
	} {
		if host, pid := whence(label); host != want.host || pid != want.pid {
			t.Errorf("%s: %s %d", label, host, pid)
		}
	}
	if host, pid := whence(ownLabel(strings.Repeat("ü", 300))); host == "" || pid != os.Getpid() {
		t.Error("our own label of a long command cannot be read")
	}
	if n := len(ownLabel(strings.Repeat("ü", 300))); n > holdfast.MaxLabelBytes {
		t.Errorf("our own label has %d bytes", n)
	}
}

func TestWaitLine(t *testing.T) {
	r := holdfast.Record{
		Holders: []holdfast.Holder{{Label: "web1/a[1]", Held: 12 * time.Second}, {Label: "web1/b[2]"}},
		Waiters: []holdfast.Waiter{{Label: "web2/c[3]"}, {Label: "us"}, {Label: "web2/d[4]"}},
	}
	if got := waitLine("L", "us", &r, nil, 3*time.Second); got != "waiting 3s for L: held by web1/a[1] for 12s and 1 more, 1 ahead" {
		t.Error(got)
	}
	r.Waiters = nil
	if got := waitLine("L", "us", &r, nil, 3*time.Second); strings.Contains(got, "ahead") {
		t.Error(got)
	}
	if got := waitLine("L", "us", &r, errors.New("x"), 3*time.Second); got != "waiting 3s for L" {
		t.Error(got)
	}
}

func TestParseLossPolicy(t *testing.T) {
	for in, ok := range map[string]bool{
		"term": true, "kill": true, "continue": true, "signal:USR1": true, "signal:sigusr1": true, "signal:": false, "signal:NO": false, "USR1": false, "": false,
	} {
		if _, err := parseLossPolicy(in); (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// The guard acts neither before a renewal can have come, nor after the end.
func TestLossPolicyDue(t *testing.T) {
	for _, ttl := range []time.Duration{holdfast.MinTTL, time.Second, holdfast.DefaultTTL, holdfast.MaxTTL} {
		left := ttl*99/100 - max(50*time.Millisecond, ttl/50) // what the library trusts of a fresh lease
		for _, grace := range []time.Duration{0, 10 * time.Millisecond, defaultGrace, time.Hour} {
			act, kill := lossTerm.due(left, ttl, grace)
			if act <= ttl/3+ttl/10 || act > kill || kill >= left || kill-act > grace {
				t.Errorf("ttl %v, grace %v: act after %v, kill after %v of %v", ttl, grace, act, kill, left)
			}
			if a, k := lossKill.due(left, ttl, grace); a != never || k != act {
				t.Errorf("kill: act after %v, kill after %v", a, k)
			}
			if a, k := (lossPolicy{signal: 10}).due(left, ttl, grace); a != act || k != never {
				t.Errorf("signal: act after %v, kill after %v", a, k)
			}
			if a, k := (lossPolicy{}).due(left, ttl, grace); a != never || k != never {
				t.Errorf("continue: act after %v, kill after %v", a, k)
			}
		}
	}
	// Of a lease that is nearly over, nothing is left to be graceful with.
	if act, kill := lossTerm.due(10*time.Millisecond, time.Second, time.Minute); act != kill || kill > 0 {
		t.Errorf("act after %v, kill after %v", act, kill)
	}
}
