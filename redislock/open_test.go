package redislock

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// What does not open says why, and what to do about it.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	open, closed := sharedServer(t), ownServer(t)
	must(t, closed.client(t), "CONFIG", "SET", "requirepass", "secret")
	for url, want := range map[string]struct {
		kind driver.Kind
		text string
	}{
		closed.url(): {driver.Denied, "password-file"},
		strings.Replace(closed.url(), "//", "//:wrong@", 1): {driver.Denied, "WRONGPASS"},
		open.url() + "/99": {driver.Invalid, "out of range"},
		strings.Replace(open.url(), "redis:", "redis+sentinel:", 1) + "/m": {driver.Unsupported, "no sentinel"},
		strings.Replace(open.url(), "redis:", "redis+cluster:", 1):         {driver.Unsupported, "not part of a cluster"},
		strings.Replace(open.url(), "redis:", "rediss:", 1):                {driver.Unavailable, "redis://"},
		"redis://" + tlsListener(t):                                        {driver.Unavailable, "rediss://"},
	} {
		s, err := openURL(t.Context(), url)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", url)
			continue
		}
		f, _ := errors.AsType[*driver.Failure](err)
		if f == nil || f.Kind != want.kind || !strings.Contains(err.Error(), want.text) || strings.Contains(err.Error(), "wrong@") {
			t.Errorf("%s: want %v with %q: %v", url, want.kind, want.text, err)
		}
	}
}

// tlsListener is a server that speaks TLS alone.
func tlsListener(t *testing.T) (addr string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errors.New("none")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}(conn)
		}
	}()
	return l.Addr().String()
}
