package redislock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// authority is a certificate authority of a test's own, which signs what it is
// asked to.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.issue(t, "ca", nil)
	return a
}

// issue writes NAME.crt and NAME.key.
func (a *authority) issue(t *testing.T, name string, ips []net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// servers are the files for servers of 127.0.0.1.
func (a *authority) servers(t *testing.T) *redistest.TLS {
	t.Helper()
	a.issue(t, "server", []net.IP{net.IPv4(127, 0, 0, 1)})
	return &redistest.TLS{Cert: a.file("server.crt"), Key: a.file("server.key"), CA: a.file("ca.crt")}
}

// trusting are the parameters of a client that trusts it, and has a certificate of it.
func (a *authority) trusting(t *testing.T) (ca, mine string) {
	t.Helper()
	a.issue(t, "client", nil)
	return "?ca-file=" + a.file("ca.crt"), "&cert-file=" + a.file("client.crt") + "&key-file=" + a.file("client.key")
}

// TLS with a certificate authority of one's own, and with the client's own
// certificate, which the server asks for.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	started, err := redistest.StartTLS(redistest.Default, a.servers(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Remove)
	plain, base := &server{started}, "rediss://"+started.TLSAddr()
	ca, mine := a.trusting(t)
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
		"a certificate alone":      base + ca + "&cert-file=" + a.file("client.crt"),
		"a file that is not there": base + "?ca-file=/not/there",
		"a file without one":       base + "?ca-file=" + a.file("ca.key"),
		"TLS where there is none":  strings.Replace(base, "rediss", "redis", 1) + ca,
	} {
		if _, err := openURL(t.Context(), bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// refusesTLS opens a URL in ways that must fail, and say why.
func refusesTLS(t *testing.T, a *authority, base string) {
	t.Helper()
	ca, mine := a.trusting(t)
	for what, bad := range map[string]struct{ url, text string }{
		"an unknown authority": {base + "?" + mine[1:], "by ca-file"},
		"another authority":    {base + "?ca-file=" + newAuthority(t).file("ca.crt") + mine, "by ca-file"},
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
	r, err := redistest.StartSentinelTLS(redistest.Default, a.servers(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Remove)
	ca, mine := a.trusting(t)
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
	c, err := redistest.StartClusterTLS(redistest.Default, a.servers(t), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Remove)
	ca, mine := a.trusting(t)
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
