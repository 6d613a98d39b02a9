// Package certtest issues certificates for tests of TLS.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs what it is asked to, with files in a folder. Its own certificate is
// the file ca.crt.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority, and issues certificates for names.
func New(dir string, names ...string) (*Authority, error) {
	a := &Authority{dir: dir}
	for _, name := range append([]string{"ca"}, names...) {
		if err := a.issue(name); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// File is the path of a file in the folder.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.crt and NAME.key, good for an hour, for a server on 127.0.0.1 or
// a client who is called NAME. The first is the authority's own.
func (a *Authority) issue(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "EC PRIVATE KEY", keyDER))
}

func (a *Authority) write(file, kind string, der []byte) error {
	return os.WriteFile(a.File(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
