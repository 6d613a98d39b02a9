package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// passwordVariable is used where the URL has no password.
const passwordVariable = "HOLDFAST_REDIS_PASSWORD" //nolint:gosec // its name

// bufferSize is ample for a batch, and a sixteenth of the client's default.
const bufferSize = 1 << 15

func init() {
	driver.Register("redis", open)
	driver.Register("rediss", open)
}

func open(ctx context.Context, u *url.URL, _ *driver.OpenOptions) (driver.Store, error) {
	option, opts, err := parse(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	link := &rueidisLink{own: true}
	link.countDials(option)
	client, err := dial(ctx, option)
	if err != nil {
		return nil, openError(err)
	}
	link.client = client
	s, err := newStore(ctx, link, opts)
	if err != nil {
		client.Close()
		return nil, openError(err)
	}
	return s, nil
}

// dial makes the client, and gives up with ctx though rueidis does not.
func dial(ctx context.Context, option *rueidis.ClientOption) (rueidis.Client, error) {
	type made struct {
		client rueidis.Client
		err    error
	}
	done := make(chan made, 1)
	go func() {
		client, err := rueidis.NewClient(*option)
		done <- made{client, err}
	}()
	select {
	case m := <-done:
		return m.client, m.err
	case <-ctx.Done():
		go func() {
			if m := <-done; m.err == nil {
				m.client.Close()
			}
		}()
		return nil, &driver.Failure{Kind: driver.Unavailable, Err: fmt.Errorf("redis: dialing: %w", ctx.Err())}
	}
}

// openError says that nothing was done if the server could not be reached.
func openError(err error) error {
	if kind := classify(err); kind != driver.Indeterminate {
		return &driver.Failure{Kind: kind, Err: err}
	}
	return &driver.Failure{Kind: driver.Unavailable, Err: err}
}

// parse reads the URL. Errors never hold the password.
func parse(u *url.URL) (*rueidis.ClientOption, *Options, error) {
	p := driver.NewParams(u)
	file, opts := p.Take("password-file"), &Options{Durable: p.Bool("durable")}
	errs := []error{p.Done()}
	option := &rueidis.ClientOption{
		ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		PipelineMultiplex: -1, // one connection: all that is sent at once travels together
		Dialer:            net.Dialer{Timeout: 3 * time.Second}, ConnWriteTimeout: 5 * time.Second,
		ReadBufferEachConn: bufferSize, WriteBufferEachConn: bufferSize,
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		errs = append(errs, errors.New("the URL names no host"))
	}
	if port == "" {
		port = "6379"
	}
	option.InitAddress = []string{net.JoinHostPort(host, port)}
	if db := strings.Trim(u.Path, "/"); db != "" {
		n, err := strconv.Atoi(db)
		if option.SelectDB = n; err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("%q is no number of a database", db))
		}
	}
	if u.Scheme == "rediss" {
		option.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	}
	option.Username = u.User.Username()
	password, err := passwordFor(u, file)
	option.Password = password
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, nil, &driver.Failure{Kind: driver.Invalid, Err: fmt.Errorf("redis: %w", err)}
	}
	return option, opts, nil
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
	}
	return os.Getenv(passwordVariable), nil
}
