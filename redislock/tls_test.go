package redislock

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/certtest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// authority is a certificate authority of a test's own.
type authority struct{ *certtest.Authority }

func newAuthority(tb testing.TB) authority {
	tb.Helper()
	a, err := certtest.New(tb.TempDir(), "server", "client")
	if err != nil {
		tb.Fatal(err)
	}
	return authority{a}
}

// servers are the files for servers of 127.0.0.1.
func (a authority) servers() *redistest.TLS {
	return &redistest.TLS{Cert: a.File("server.crt"), Key: a.File("server.key"), CA: a.File("ca.crt")}
}

// trusting are the parameters of a client that trusts it, and has a certificate of it.
func (a authority) trusting() (ca, mine string) {
	return "?ca-file=" + a.File("ca.crt"), "&cert-file=" + a.File("client.crt") + "&key-file=" + a.File("client.key")
}

// TLS with a certificate authority of one's own, and with the client's own
// certificate, which the server asks for.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	started, err := redistest.StartTLS(redistest.Default, a.servers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Remove)
	plain, base := &server{started}, "rediss://"+started.TLSAddr()
	ca, mine := a.trusting()
	s, other := openAt(t, base+ca+mine), openAt(t, base+ca+mine)
	var h heard
	h.listen(other)
	ref, place := hold(t, s, t.Name()), enqueue(t, other, t.Name())
	free(t, s, ref)
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	outlives(t, directTo(t, base+ca+mine), plain.client(t))
	refusesTLS(t, a, base)
	for what, bad := range map[string]string{
		"another name":             base + ca + mine + "&server-name=elsewhere",
		"a certificate alone":      base + ca + "&cert-file=" + a.File("client.crt"),
		"a file that is not there": base + "?ca-file=/not/there",
		"a file without one":       base + "?ca-file=" + a.File("ca.key"),
		"TLS where there is none":  strings.Replace(base, "rediss", "redis", 1) + ca,
	} {
		if _, err := openURL(t.Context(), bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// refusesTLS opens a URL in ways that must fail, and say why.
func refusesTLS(t *testing.T, a authority, base string) {
	t.Helper()
	ca, mine := a.trusting()
	for what, bad := range map[string]struct{ url, text string }{
		"an unknown authority": {base + "?" + mine[1:], "by ca-file"},
		"another authority":    {base + "?ca-file=" + newAuthority(t).File("ca.crt") + mine, "by ca-file"},
		"no certificate":       {base + ca, "cert-file"},
		"no TLS":               {strings.Replace(base, "rediss", "redis", 1), "use rediss"},
	} {
		began := time.Now()
		s, err := openURL(t.Context(), bad.url)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was taken", what)
			continue
		}
		if !strings.Contains(err.Error(), bad.text) || classify(err) != driver.Unavailable {
			t.Errorf("%s: %v, after %v: %v", what, classify(err), time.Since(began), err)
		}
	}
}

// The same with sentinels, of which and behind which all speak TLS, also after a
// failover.
func TestTLSBehindSentinel(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	r, err := redistest.StartSentinelTLS(redistest.Default, a.servers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Remove)
	ca, mine := a.trusting()
	refusesTLS(t, a, r.URL())
	survives(t, r.URL()+ca+mine, func() {
		if err := r.Failover(); err != nil {
			t.Fatal(err)
		}
	})
}

// And in a cluster, on each node.
func TestTLSInACluster(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	c, err := redistest.StartClusterTLS(redistest.Default, a.servers(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Remove)
	ca, mine := a.trusting()
	refusesTLS(t, a, c.URL())
	s, other := openAt(t, c.URL()+ca+mine), openAt(t, c.URL()+ca+mine)
	var h heard
	h.listen(other)
	owners := map[*redistest.Server]bool{}
	for i := range 20 {
		name := t.Name() + strconv.Itoa(i)
		ref, place := hold(t, s, name), enqueue(t, other, name)
		owners[c.Owner(recordKey(tagOf(":"+name), ":"+name))] = true
		free(t, s, ref)
		until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	}
	if len(owners) != 3 {
		t.Errorf("names on %d nodes", len(owners))
	}
}
