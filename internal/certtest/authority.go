// Package certtest issues certificates for tests of TLS.
package certtest

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
	"testing"
	"time"
)

// Authority signs what it is asked to, with files in a folder of a test's own. Its
// own certificate is the file ca.crt.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir()}
	a.cert, a.key = a.issue(tb, "ca")
	return a
}

// File is the path of a file in the folder.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Issue writes NAME.crt and NAME.key, good for an hour, for servers on 127.0.0.1 and
// for clients who are called NAME.
func (a *Authority) Issue(tb testing.TB, name string) {
	tb.Helper()
	a.issue(tb, name)
}

func (a *Authority) issue(tb testing.TB, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
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
	must(tb, err)
	cert, err := x509.ParseCertificate(der)
	must(tb, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(tb, err)
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		must(tb, os.WriteFile(a.File(file), pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
