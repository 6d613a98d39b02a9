package zklock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/zktest"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

var world = []zk.ACL{{Perms: zk.PermAll, Scheme: "world", ID: "anyone"}}

// raw sends requests of a test's own.
func (c *client) raw(tb testing.TB, ops ...zk.Op) []zk.Reply {
	tb.Helper()
	replies, err := c.present(tb).zk.Do(tb.Context(), ops...)
	if err != nil {
		tb.Fatal(err)
	}
	return replies
}

// refuses asserts the kind of an attempt's error.
func (c *client) refuses(tb testing.TB, name string, want driver.Kind) {
	tb.Helper()
	res, err := c.Acquire(tb.Context(), request(name))
	if err == nil {
		tb.Errorf("%s: status %d, want %v", name, res.Status, want)
	} else if kind := c.Classify(err); kind != want {
		tb.Errorf("%s: %v, want %v: %v", name, kind, want, err)
	}
}

// A node of the name that is not ours is a conflict and never touched; children
// that are not are in nobody's way, unless a later version of ours made them.
func TestForeignNodes(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	c := server.open(t)
	c.free(t, c.hold(t, "root"))
	for what, op := range map[string]zk.Op{
		"theirs":    zk.Create(c.dir("+theirs"), []byte("theirs"), world, zk.Persistent),
		"ephemeral": zk.Create(c.dir("+ephemeral"), named(&driver.Name{Full: "ephemeral"}), world, zk.Ephemeral),
		"other":     zk.Create(c.dir("+other"), named(&driver.Name{Full: "another name"}), world, zk.Persistent),
		"later":     zk.Create(c.dir("+later"), []byte("hf2 :later"), world, zk.Persistent),
	} {
		c.raw(t, op)
		c.refuses(t, what, driver.Conflict)
		c.refuses(t, what, driver.Conflict)
		if what == "ephemeral" {
			continue
		}
		replies := c.raw(t, zk.GetChildren(c.dir("+"+what), false))
		if names, err := replies[0].Children(); err != nil || len(names) > 0 {
			t.Errorf("%s: %v is left, %v", what, names, err)
		}
	}
	if _, err := c.Inspect(t.Context(), nameOf("theirs")); c.Classify(err) != driver.Conflict {
		t.Errorf("inspect: %v", err)
	}
	for r, err := range c.List(t.Context(), "") {
		if err != nil || r.Name == "theirs" || r.Name == "later" {
			t.Errorf("listed: %+v, %v", r, err)
		}
	}

	dir := c.dir("+strays")
	c.free(t, c.hold(t, "strays"))
	c.raw(t, zk.Create(dir+"/lock-0000000000", nil, world, zk.Persistent), zk.Create(dir+"/_c_4711-lock-", nil, world, zk.EphemeralSequential))
	ref, place := c.hold(t, "strays"), c.enqueue(t, "strays")
	c.free(t, ref)
	c.free(t, c.told(t, place))
	made := c.raw(t, zk.Create(dir+"/hf2-x-whatever-", nil, world, zk.EphemeralSequential))
	c.refuses(t, "strays", driver.Conflict)
	later, _, err := made[0].Created()
	if err != nil {
		t.Fatal(err)
	}
	c.raw(t, zk.Delete(later))
	c.free(t, c.hold(t, "strays"))
}

// With a user nodes are his alone: everybody else is refused, and changes nothing.
func TestUsers(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	at := func(user string) string { return strings.Replace(server.url(), "//", "//"+user, 1) }
	ann, bob, nobody := openAt(t, at("ann:s3cr3t@"), testTTL), openAt(t, at("bob:other@"), testTTL), server.open(t)
	ref := ann.hold(t, "name")
	for who, c := range map[string]*client{"another user": bob, "nobody": nobody} {
		c.refuses(t, "name", driver.Denied)
		c.refuses(t, "new", driver.Denied)
		if _, err := c.Inspect(t.Context(), ref.Name); c.Classify(err) != driver.Denied {
			t.Errorf("%s inspects: %v", who, err)
		}
		if _, err := c.Release(t.Context(), &driver.ReleaseRequest{Ref: ref}); c.Classify(err) != driver.Denied {
			t.Errorf("%s releases: %v", who, err)
		}
		if _, err := c.Break(t.Context(), &driver.BreakRequest{Name: ref.Name, Token: ref.Token, Reason: "test", Force: true}); c.Classify(err) != driver.Denied {
			t.Errorf("%s breaks: %v", who, err)
		}
		for _, err := range c.List(t.Context(), "") {
			if c.Classify(err) != driver.Denied {
				t.Errorf("%s lists: %v", who, err)
			}
		}
	}
	again := openAt(t, at("ann:s3cr3t@"), testTTL)
	place := again.enqueue(t, "name")
	if res := ann.renew(t, ref); res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	ann.free(t, ref)
	again.free(t, again.told(t, place))

	open := openAt(t, strings.Replace(at("ann:s3cr3t@"), "/holdfast", "/open/to/all", 1)+"?open=true", testTTL)
	open.free(t, open.hold(t, "name"))
	other := openAt(t, strings.Replace(server.url(), "/holdfast", "/open/to/all", 1), testTTL)
	other.free(t, other.hold(t, "name"))
}

func TestURLs(t *testing.T) {
	server := sharedServer(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	if err := os.WriteFile(file, []byte("s3cr3t\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(user, rest string) string { return "zookeeper://" + user + server.Addr() + rest }
	roots := map[string]string{
		at("", ""): "/holdfast", at("", "/"): "", at("", "/a/b"): "/a/b", at("", "/a/b/"): "/a/b", at("u:p@", "/c?open=true"): "/c",
		at("u@", "/d?password-file="+file): "/d", "zookeeper://127.0.0.1:1," + server.Addr() + "/e": "/e",
	}
	for text, root := range roots {
		c := openAt(t, text, testTTL)
		if c.root != root {
			t.Errorf("%s: root %q, want %q", text, c.root, root)
		}
		c.free(t, c.hold(t, "name"))
	}
	if c := openAt(t, at("u@", "/d?password-file="+file), testTTL); c.config.Digest != "u:s3cr3t" {
		t.Errorf("digest %q", c.config.Digest)
	}
	for text, want := range map[string]driver.Kind{
		at("", "?speed=1"): driver.Invalid, at("", "?open=maybe"): driver.Invalid, "zookeeper://": driver.Invalid, "zookeeper:///root": driver.Invalid,
		at("", "//a"): driver.Invalid, at("", "/a/../b"): driver.Invalid, at("u:p@", "?password-file="+file): driver.Invalid,
		at("", "?password-file="+file): driver.Invalid, at("u@", "?password-file=/not/there"): driver.Invalid, at(":wr0ng@", ""): driver.Invalid,
		at("", "?ca=/x"): driver.Invalid, "zookeepers://h?ca=/not/there": driver.Invalid, "zookeepers://h?cert=" + file: driver.Invalid,
		"zookeeper://u:wr0ng@127.0.0.1:1": driver.Unavailable, "zookeeper://h,,i": driver.Invalid,
	} {
		_, err := openURL(t.Context(), text)
		if err == nil || driver.KindOf(err) != want || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	t.Setenv(passwordVariable, "s3cr3t")
	if c := openAt(t, at("u@", ""), testTTL); c.config.Digest != "u:s3cr3t" {
		t.Errorf("digest %q", c.config.Digest)
	}
}

// What the servers grant bounds what can be asked for.
func TestLongestTTL(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	if p := openAt(t, server.url(), 6*time.Second).Properties(); p.MaxTTL != 6*time.Second {
		t.Errorf("MaxTTL %v", p.MaxTTL)
	}
	p := openAt(t, server.url(), time.Hour).Properties() // the servers' most is 120 s
	if p.MaxTTL != 90*time.Second || !strings.Contains(strings.Join(p.Warnings, "; "), "for 1m30s at most") {
		t.Errorf("MaxTTL %v, warnings %q", p.MaxTTL, p.Warnings)
	}
}

// zookeepers:// is the same over TLS, and knows whom it speaks to.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	dir := t.TempDir()
	cert, caFile := selfSigned(t, dir)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server.Addr()) //nolint:noctx // loopback
			if err != nil {
				_ = down.Close()
				continue
			}
			go func() { _, _ = io.Copy(up, down); _ = up.Close() }()
			go func() { _, _ = io.Copy(down, up); _ = down.Close() }()
		}
	}()
	url := "zookeepers://" + l.Addr().String() + "/holdfast?cert=" + filepath.Join(dir, "cert.pem") + "&key=" + filepath.Join(dir, "key.pem")
	c := openAt(t, url+"&ca="+caFile, testTTL)
	c.free(t, c.hold(t, t.Name()))
	if _, err := openURL(t.Context(), url); driver.KindOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown authority: %v", err)
	}
	if _, err := openURL(t.Context(), url+"&ca="+caFile+"&server-name=other.example"); driver.KindOf(err) != driver.Unavailable {
		t.Errorf("another name: %v", err)
	}
}

func selfSigned(tb testing.TB, dir string) (pair tls.Certificate, ca string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	ca = filepath.Join(dir, "cert.pem")
	for file, block := range map[string]*pem.Block{
		ca: {Type: "CERTIFICATE", Bytes: der}, filepath.Join(dir, "key.pem"): {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(ca, filepath.Join(dir, "key.pem")); err != nil {
		tb.Fatal(err)
	}
	return pair, ca
}

// The whole suite on an ensemble, and on a newer version.
func TestConformanceElsewhere(t *testing.T) {
	if !full() {
		return // long
	}
	t.Run("three", func(t *testing.T) { suite(t, newEnsemble(t, zktest.Debian).url()) })
	t.Run("three of 3.9", func(t *testing.T) { suite(t, newEnsemble(t, zktest.Newer).url()) })
	t.Run("3.9", func(t *testing.T) {
		s, err := zktest.Start(zktest.Newer)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Remove)
		suite(t, s.URL())
	})
}
