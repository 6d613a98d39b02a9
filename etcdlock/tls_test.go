package etcdlock

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/certtest"
)

func authority(tb testing.TB, names ...string) *certtest.Authority {
	tb.Helper()
	a, err := certtest.New(tb.TempDir(), names...)
	must(tb, err)
	return a
}

// handsOver passes the name from one client to another.
func handsOver(t *testing.T, s, other *store, name driver.Name) {
	t.Helper()
	var h heard
	h.listen(other)
	first, second := request(name.Full), request(name.Full)
	first.Name, second.Name, second.Queue = name, name, true
	ref, _ := ask(t, s, first)
	place, status := ask(t, other, second)
	if status != driver.Waiting {
		t.Fatalf("status %d", status)
	}
	free(t, s, ref)
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	free(t, other, place)
}

// TLS with a certificate authority of one's own, and with the client's own
// certificate, where the server asks for it.
func TestTLS(t *testing.T) {
	t.Parallel()
	a, b := authority(t, "server", "client"), authority(t, "client")
	server := ownServer(t, "--cert-file="+a.File("server.crt"), "--key-file="+a.File("server.key"),
		"--trusted-ca-file="+a.File("ca.crt"), "--client-cert-auth")
	base := "etcds://" + server.Nodes[0].Secure
	ca, mine := "?ca-file="+a.File("ca.crt"), "&cert-file="+a.File("client.crt")+"&key-file="+a.File("client.key")
	handsOver(t, openAt(t, base+ca+mine), openAt(t, base+ca+mine), nameOfText(t.Name()))
	for what, bad := range map[string]string{
		"an authority that is the system's":  base + "?" + mine[1:],
		"another authority":                  base + "?ca-file=" + b.File("ca.crt") + mine,
		"no certificate":                     base + ca,
		"a certificate of another authority": base + ca + "&cert-file=" + b.File("client.crt") + "&key-file=" + b.File("client.key"),
		"a certificate for another host":     strings.Replace(base, "127.0.0.1", "localhost", 1) + ca + mine,
		"a certificate without its key":      base + ca + "&cert-file=" + a.File("client.crt"),
		"a key of another certificate":       base + ca + "&cert-file=" + a.File("client.crt") + "&key-file=" + a.File("server.key"),
		"a file without a certificate":       base + "?ca-file=" + a.File("ca.key") + mine,
		"TLS where there is none":            "etcds://" + server.Nodes[0].Addr + ca + mine,
		"no TLS where there is nothing else": "etcd://" + server.Nodes[0].Secure,
	} {
		if _, err := openURL(t.Context(), bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// A user and TLS together: the password goes over the encrypted connection, and the
// name in the client's own certificate is a user too where there is no password.
func TestTLSWithUsers(t *testing.T) {
	t.Parallel()
	a := authority(t, "server", "locker", "stranger")
	server := ownServer(t, "--cert-file="+a.File("server.crt"), "--key-file="+a.File("server.key"),
		"--trusted-ca-file="+a.File("ca.crt"), "--client-cert-auth")
	withUsers(t, server)
	at := func(user, cert string) string {
		return "etcds://" + user + server.Nodes[0].Secure + "?ca-file=" + a.File("ca.crt") + "&cert-file=" + a.File(cert+".crt") + "&key-file=" + a.File(cert+".key")
	}
	name := driver.Name{Key: "shop+name", Full: "name", Prefix: "shop"}
	handsOver(t, openAt(t, at("locker:s3cr3t@", "stranger")), openAt(t, at("", "locker")), name)
	_, err := openURL(t.Context(), at("locker:wr0ng@", "stranger"))
	if err == nil || classify(err) != driver.Denied || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a wrong password: %v", err)
	}
	s, err := openURL(t.Context(), at("", "stranger"))
	if err == nil { // a lease alone needs no right on some servers
		req := request("name")
		req.Name = name
		_, err = s.Acquire(t.Context(), req)
		defer s.Close()
	}
	if classify(err) != driver.Denied {
		t.Errorf("a stranger: %v", err)
	}
}

// Rights that change while a client is at work: what is refused is denied, and goes on
// as soon as it is allowed again, whatever became of the client's ticket meanwhile.
func TestRightsChange(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	withUsers(t, server)
	at := func(user string) string { return strings.Replace(server.URL(), "//", "//"+user+"@", 1) }
	s, ctx := openAt(t, at("locker:s3cr3t")), t.Context()
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Nodes[0].Addr}, Username: "root", Password: "secret", Logger: zap.NewNop()})
	must(t, err)
	defer root.Close()
	attempt := func() (driver.Status, error) {
		req := request("name")
		req.Name = driver.Name{Key: "shop+name", Full: "name", Prefix: "shop"}
		res, err := s.Acquire(ctx, req)
		if err == nil && res.Status == driver.Granted {
			free(t, s, driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: res.Grant.Token})
		}
		return res.Status, err
	}
	for what, change := range map[string][2]func() error{
		"a right that is taken away": {
			func() error {
				_, err := root.RoleRevokePermission(ctx, "locker", "hf/shop+", clientv3.GetPrefixRangeEnd("hf/shop+"))
				return err
			},
			func() error {
				_, err := root.RoleGrantPermission(ctx, "locker", "hf/shop+", clientv3.GetPrefixRangeEnd("hf/shop+"), clientv3.PermissionType(clientv3.PermReadWrite))
				return err
			},
		},
		"another password": {
			func() error { _, err := root.UserChangePassword(ctx, "locker", "other"); return err },
			func() error { _, err := root.UserChangePassword(ctx, "locker", "s3cr3t"); return err },
		},
	} {
		must(t, change[0]())
		until(t, what+" is denied", func() bool { _, err := attempt(); return err != nil && s.Classify(err) == driver.Denied })
		must(t, change[1]())
		until(t, what+" is allowed again", func() bool { status, err := attempt(); return err == nil && status == driver.Granted })
	}
}
