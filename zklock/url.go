package zklock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// passwordVariable is used where the URL has a user and no password.
const passwordVariable = "HOLDFAST_ZOOKEEPER_PASSWORD"

func init() {
	driver.Register("zookeeper", open)
	driver.Register("zookeepers", open)
}

func open(ctx context.Context, u *url.URL, oo *driver.OpenOptions) (driver.Store, error) {
	servers, opts, err := parse(u)
	if err != nil {
		return nil, &driver.Failure{Kind: driver.Invalid, Err: fmt.Errorf("zookeeper: %w", err)}
	}
	opts.TTL = oo.TTL
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	s, err := newStore(ctx, servers, opts)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// parse reads the URL. Errors never hold the password.
func parse(u *url.URL) ([]string, *Options, error) {
	p := driver.NewParams(u)
	file, files := p.Take("password-file"), tlsFiles{p.Take("ca"), p.Take("cert"), p.Take("key"), p.Take("server-name")}
	opts := &Options{Root: u.Path, Open: p.Bool("open"), User: u.User.Username()}
	errs := []error{p.Done()}
	if opts.Root == "" {
		opts.Root = "/holdfast"
	}
	var err error
	if opts.Password, err = passwordFor(u, file); err != nil {
		errs = append(errs, err)
	}
	switch {
	case u.Scheme == "zookeepers":
		if opts.TLS, err = files.config(); err != nil {
			errs = append(errs, err)
		}
	case files != tlsFiles{}:
		errs = append(errs, errors.New("ca, cert, key and server-name are for zookeepers://"))
	}
	var servers []string
	if u.Host != "" {
		servers = strings.Split(u.Host, ",")
	}
	errs = append(errs, (&Options{Root: opts.Root}).validate(servers))
	return servers, opts, errors.Join(errs...)
}

func passwordFor(u *url.URL, file string) (string, error) {
	password, inURL := u.User.Password()
	switch {
	case inURL && file != "":
		return "", errors.New("a password in the URL and a password-file: give one")
	case inURL:
		return password, nil
	case file != "" && u.User.Username() == "":
		return "", errors.New("a password-file without a user")
	case file != "":
		text, err := os.ReadFile(file) //nolint:gosec // the user names it
		if err != nil {
			return "", fmt.Errorf("password-file: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSuffix(line, "\r"), nil
	case u.User.Username() == "":
		return "", nil
	}
	return os.Getenv(passwordVariable), nil
}

// tlsFiles are what a URL says of TLS.
type tlsFiles struct{ ca, cert, key, serverName string }

func (f tlsFiles) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.serverName}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca: no certificate in " + f.ca)
		}
	}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
