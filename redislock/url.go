package redislock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

// These are used where the URL has no password.
const (
	passwordVariable         = "HOLDFAST_REDIS_PASSWORD"          //nolint:gosec // its name
	sentinelPasswordVariable = "HOLDFAST_REDIS_SENTINEL_PASSWORD" //nolint:gosec // its name
)

// bufferSize is ample for a batch, and a sixteenth of the client's default.
const bufferSize = 1 << 15

// Schemes of URLs; each may begin with rediss, for TLS.
const (
	singleScheme   = "redis"
	sentinelScheme = "redis+sentinel"
	clusterScheme  = "redis+cluster"
)

func init() {
	for _, scheme := range []string{singleScheme, sentinelScheme, clusterScheme} {
		driver.Register(scheme, open)
		driver.Register("rediss"+scheme[len("redis"):], open)
	}
}

func open(ctx context.Context, u *url.URL, _ *driver.OpenOptions) (driver.Store, error) {
	option, opts, err := parse(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	link, err := linkTo(ctx, option)
	if err != nil {
		return nil, openError(u, err)
	}
	s, err := newStore(ctx, link, opts)
	if err == nil && strings.HasSuffix(u.Scheme, "+cluster") && !s.cluster { // the client makes do with less
		err = errors.Join(failure(driver.Unsupported, "the server is not part of a cluster"), s.Close())
	}
	if err != nil {
		link.Close()
		return nil, openError(u, err)
	}
	return s, nil
}

// linkTo reaches one server by itself, and several through rueidis.
func linkTo(ctx context.Context, option *rueidis.ClientOption) (Link, error) {
	if option.ForceSingleClient {
		return newDirectLink(option), nil
	}
	link := &rueidisLink{own: true}
	link.countDials(option)
	client, err := dial(ctx, option)
	link.client = client
	return link, err
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

// parse reads the URL. Errors never hold the password.
func parse(u *url.URL) (*rueidis.ClientOption, *Options, error) {
	p := driver.NewParams(u)
	option := &rueidis.ClientOption{
		DisableCache: true, DisableRetry: true,
		Dialer: net.Dialer{Timeout: 3 * time.Second, KeepAlive: time.Second}, ConnWriteTimeout: 5 * time.Second,
		ReadBufferEachConn: bufferSize, WriteBufferEachConn: bufferSize,
	}
	opts := &Options{Durable: p.Bool("durable")}
	scheme, secure := strings.CutPrefix(u.Scheme, "rediss")
	scheme = "redis" + strings.TrimPrefix(scheme, "redis")
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	var err error
	option.Username = u.User.Username()
	option.Password, err = passwordFor(u, p.Take("password-file"), passwordVariable)
	try(err)
	option.TLSConfig, err = tlsFor(p, secure)
	try(err)
	opts.Wait, err = number(p.Take("wait"))
	try(err)
	switch scheme {
	case singleScheme:
		try(single(option, u))
	case sentinelScheme:
		try(sentinels(option, u, p))
	case clusterScheme:
		try(cluster(option, u))
	}
	try(p.Done())
	if err = errors.Join(errs...); err != nil {
		return nil, nil, &driver.Failure{Kind: driver.Invalid, Err: fmt.Errorf("redis: %w", err)}
	}
	return option, opts, nil
}

func single(option *rueidis.ClientOption, u *url.URL) (err error) {
	option.ForceSingleClient = true
	option.InitAddress = hosts(u, "6379")
	option.SelectDB, err = database(strings.Trim(u.Path, "/"))
	if len(option.InitAddress) != 1 {
		err = errors.Join(err, errors.New("the URL must name one host; several make redis+sentinel:// or redis+cluster://"))
	}
	return err
}

func sentinels(option *rueidis.ClientOption, u *url.URL, p *driver.Params) (err error) {
	option.PipelineMultiplex = -1
	option.InitAddress = hosts(u, "26379")
	master, db, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	option.Sentinel = rueidis.SentinelOption{
		MasterSet: master, Dialer: option.Dialer, TLSConfig: option.TLSConfig,
		Username: p.Take("sentinel-user"), TopologyRefreshInterval: refresh,
	}
	var dbErr error
	option.Sentinel.Password, err = passwordFor(&url.URL{}, p.Take("sentinel-password-file"), sentinelPasswordVariable)
	option.SelectDB, dbErr = database(db)
	if err = errors.Join(err, dbErr); master == "" || len(option.InitAddress) == 0 {
		err = errors.Join(err, errors.New("the URL must name sentinels and a master: redis+sentinel://host1,host2/MASTER"))
	}
	return err
}

func cluster(option *rueidis.ClientOption, u *url.URL) error {
	option.InitAddress = hosts(u, "6379")
	option.ClusterOption = rueidis.ClusterOption{ShardsRefreshInterval: refresh, MaxMovedRedirections: 16}
	if len(option.InitAddress) == 0 || strings.Trim(u.Path, "/") != "" {
		return errors.New("the URL must name hosts and no database: redis+cluster://host1,host2")
	}
	return nil
}

// refresh is how often the topology is asked for, beside when a call shows
// that it has changed.
const refresh = 5 * time.Second

// hosts are those of the URL, with their ports.
func hosts(u *url.URL, port string) (addrs []string) {
	for host := range strings.SplitSeq(u.Host, ",") {
		if host == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		addrs = append(addrs, host)
	}
	return addrs
}

func database(text string) (int, error) {
	n, err := number(text)
	if err != nil {
		err = fmt.Errorf("%q is no number of a database", text)
	}
	return n, err
}

// number reads one that is not negative; absent is 0.
func number(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no number", text)
	}
	return n, nil
}

// tlsFor reads what goes with TLS.
func tlsFor(p *driver.Params, secure bool) (*tls.Config, error) {
	ca, cert, key, name := p.Take("ca-file"), p.Take("cert-file"), p.Take("key-file"), p.Take("server-name")
	if !secure {
		if ca != "" || cert != "" || key != "" || name != "" {
			return nil, errors.New("ca-file, cert-file, key-file and server-name need rediss")
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		pem, err := os.ReadFile(ca) //nolint:gosec // the user names it
		if err != nil {
			return nil, fmt.Errorf("ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca-file: it holds no certificate")
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("cert-file and key-file go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert-file, key-file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func passwordFor(u *url.URL, file, variable string) (string, error) {
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
	return os.Getenv(variable), nil
}
