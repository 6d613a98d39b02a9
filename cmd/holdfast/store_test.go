package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// B066: an unusable store is told at once, with where it is.
func TestUnusableStores(t *testing.T) {
	s := newShop(t)
	file := filepath.Join(s.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	web := webServer(t)
	for _, c := range []struct {
		store string
		code  int
		text  string
	}{
		{"file:///no/such/dir", 69, "/no/such/dir"},
		{"file://" + file, 69, file},
		{"redis://" + closedPort(t), 69, "127.0.0.1"},
		{"redis://u:hunter2@" + closedPort(t) + "/x", 64, "database"},
		{"redis+sentinel://u:hunter2@" + closedPort(t) + "/main", 69, "127.0.0.1"},
		{"redis+cluster://u:hunter2@" + closedPort(t), 69, "127.0.0.1"},
		{"etcd://" + closedPort(t), 69, "127.0.0.1"},
		{"zookeeper://u:hunter2@" + closedPort(t), 69, "127.0.0.1"},
		{"redis://u:hunter2@" + web, 69, web},
		{"etcd://" + web, 69, web},
		{"/just/a/path", 64, "not a URL"},
		{"file:///tmp?nonsense=1", 64, "nonsense"},
		{"file://u:hunter2@h/tmp", 64, ""},
		{"%zz:hunter2", 64, "not a URL"},
	} {
		for _, args := range [][]string{{"run", "L", "--", "true"}, {"ls"}, {"show", "L"}, {"watch"}, {"doctor"}} {
			r := s.run(append([]string{args[0], "--store", c.store}, args[1:]...)...)
			r.want(t, c.code, c.text)
			if strings.Contains(r.err, "hunter2") {
				t.Errorf("a secret is shown: %s", r.err)
			}
		}
	}
}

// webServer speaks HTTP, of either version, to whoever comes.
func webServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func closedPort(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// B105: another user's directory is a matter of permission, not busy, and its
// path is told.
func TestOtherUsersDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run as another user")
	}
	s := newShop(t)
	s.free("L")
	dir := filepath.Join(filepath.Dir(binary), "roots")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := s.command("run", "--store", "file://"+dir, "L", "--", "true")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	s.launch(cmd).wait().want(t, 69, dir, "permission denied")
}

// Without a store, locks are in a directory of this user and host.
func TestDefaultStore(t *testing.T) {
	s := newShop(t)
	cmd := s.command("run", "holdfast-test-default", "--", "sh", "-c", "echo $HOLDFAST_STORE")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=/no/such", "XDG_RUNTIME_DIR=/no/such"}
	r := s.launch(cmd).wait()
	if r.code != 0 || !strings.HasPrefix(r.out, "file:///run/lock/holdfast-") && !strings.HasPrefix(r.out, "file:///tmp/holdfast-") {
		t.Errorf("%+v", r)
	}
}
