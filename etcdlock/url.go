package etcdlock

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/holdfast-go/holdfast/driver"
)

// passwordVariable is used where the URL has a user and no password.
const passwordVariable = "HOLDFAST_ETCD_PASSWORD" //nolint:gosec // its name

func init() {
	driver.Register("etcd", open)
	driver.Register("etcds", open)
}

func open(ctx context.Context, u *url.URL, opts *driver.OpenOptions) (driver.Store, error) {
	config, err := parse(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, openError(config, err)
	}
	s, err := newStore(ctx, client, cmp.Or(opts.TTL, defaultTTL))
	if err != nil {
		_ = client.Close()
		return nil, openError(config, err)
	}
	s.own = true
	return s, nil
}

// openError says where it was tried, and that nothing was done if no server could be
// reached, or who answered is none.
func openError(config *clientv3.Config, err error) error {
	kind := classify(err)
	if kind == driver.Indeterminate || kind == driver.Canceled || kind == driver.Unsupported {
		kind = driver.Unavailable
	}
	return &driver.Failure{Kind: kind, Err: fmt.Errorf("%w, at %s", err, strings.Join(config.Endpoints, ", "))}
}

// parse reads the URL. Errors never hold the password.
func parse(u *url.URL) (*clientv3.Config, error) {
	p := driver.NewParams(u)
	file, ca, cert, key := p.Take("password-file"), p.Take("ca-file"), p.Take("cert-file"), p.Take("key-file")
	errs := []error{p.Done()}
	config := &clientv3.Config{
		Logger: zap.NewNop(), DialTimeout: setUp, DialKeepAliveTime: 6 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		})},
	}
	secure, scheme := u.Scheme == "etcds", "http://"
	if secure {
		scheme = "https://"
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if host == "" || strings.HasPrefix(host, ":") {
			errs = append(errs, errors.New("the URL names no host, or one without a name"))
			continue
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2379")
		}
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		errs = append(errs, fmt.Errorf("%q: an etcd URL has no path", path))
	}
	if !secure && ca+cert+key != "" {
		errs = append(errs, errors.New("ca-file, cert-file and key-file are for etcds://"))
	}
	if secure {
		settings, err := secured(ca, cert, key)
		config.TLS = settings
		errs = append(errs, err)
	}
	password, err := passwordFor(u, file)
	config.Username, config.Password = u.User.Username(), password
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, &driver.Failure{Kind: driver.Invalid, Err: fmt.Errorf("etcd: %w", err)}
	}
	return config, nil
}

// secured makes the settings of TLS; the system's authorities count without a
// file of others.
func secured(ca, cert, key string) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca) //nolint:gosec // the user names it
		if err != nil {
			return nil, fmt.Errorf("ca-file: %w", err)
		}
		if settings.RootCAs = x509.NewCertPool(); !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("ca-file: no certificate in it")
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert-file and key-file: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

func passwordFor(u *url.URL, file string) (string, error) {
	password, inURL := u.User.Password()
	switch {
	case inURL && file != "":
		return "", errors.New("a password in the URL and a password-file: give one")
	case inURL:
		return password, nil
	case file != "":
		text, err := os.ReadFile(file) //nolint:gosec // the user names it
		if err != nil {
			return "", fmt.Errorf("password-file: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSuffix(line, "\r"), nil
	case u.User.Username() != "":
		return os.Getenv(passwordVariable), nil
	}
	return "", nil
}
