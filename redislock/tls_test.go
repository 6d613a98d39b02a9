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

func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port //nolint:errcheck // it is one
}

// TLS with a certificate authority of one's own, and with the client's own
// certificate, where the server asks for it.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue(t, "server", []net.IP{net.IPv4(127, 0, 0, 1)})
	a.issue(t, "client", nil)
	port := strconv.Itoa(freePort(t))
	ownServer(t, "--tls-port", port, "--tls-cert-file", a.file("server.crt"), "--tls-key-file", a.file("server.key"),
		"--tls-ca-cert-file", a.file("ca.crt"), "--tls-auth-clients", "yes")
	base := "rediss://127.0.0.1:" + port
	mine := "&cert-file=" + a.file("client.crt") + "&key-file=" + a.file("client.key")
	s, other := openAt(t, base+"?ca-file="+a.file("ca.crt")+mine), openAt(t, base+"?ca-file="+a.file("ca.crt")+mine)
	var h heard
	h.listen(other)
	ref, place := hold(t, s, t.Name()), enqueue(t, other, t.Name())
	free(t, s, ref)
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	for what, bad := range map[string]string{
		"an unknown authority":     base + "?" + mine[1:],
		"no certificate":           base + "?ca-file=" + a.file("ca.crt"),
		"another name":             base + "?ca-file=" + a.file("ca.crt") + mine + "&server-name=elsewhere",
		"a certificate alone":      base + "?ca-file=" + a.file("ca.crt") + "&cert-file=" + a.file("client.crt"),
		"a file that is not there": base + "?ca-file=/not/there",
		"a file without one":       base + "?ca-file=" + a.file("ca.key"),
		"TLS where there is none":  strings.Replace(base, "rediss", "redis", 1) + "?ca-file=" + a.file("ca.crt"),
	} {
		if _, err := openURL(t.Context(), bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}
