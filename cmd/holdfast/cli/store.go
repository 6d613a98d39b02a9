package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filelock"
)

// place is where locks are: the URL to open, and the one that may be shown.
type place struct {
	url, shown string
}

func (p place) oneHost() bool { return strings.HasPrefix(p.url, "file:") }

// place finds the store that was asked for: the default is the files of this
// host and user.
func (c *common) place() (place, error) {
	raw := c.store
	if raw == "" {
		dir, err := filelock.DefaultDir()
		if err != nil {
			return place{}, &holdfast.Error{Op: "open", Store: "file", Kind: holdfast.ErrUnavailable, Err: err}
		}
		raw = (&url.URL{Scheme: "file", Path: dir}).String()
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		// Not the parser's error: it quotes the URL, with its password.
		return place{}, &holdfast.Error{Op: "open", Kind: holdfast.ErrInvalid, Err: errors.New("the store is not a URL such as file:///dir")}
	}
	if c.prefix != "" {
		query := u.Query()
		query.Set("prefix", c.prefix)
		u.RawQuery = query.Encode()
	}
	return place{u.String(), withoutSecrets(u)}, nil
}

// withoutSecrets is a URL as a child may see it: it still opens the store where
// the secret comes from elsewhere.
func withoutSecrets(u *url.URL) string {
	public := *u
	if u.User != nil {
		public.User = url.User(u.User.Username())
	}
	query := public.Query()
	for key := range query {
		for _, word := range []string{"pass", "secret", "token", "credential"} {
			if strings.Contains(strings.ToLower(key), word) {
				query.Del(key)
			}
		}
	}
	public.RawQuery = query.Encode()
	return public.String()
}

// open opens the store. What the library would log, the command tells itself.
func (a *app) open(ctx context.Context, c *common, opts holdfast.Options) (*holdfast.Client, place, error) {
	at, err := c.place()
	if err != nil {
		return nil, at, err
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	client, err := holdfast.Open(ctx, at.url, &opts)
	return client, at, err
}

// fail tells an error and gives its exit status.
func (a *app) fail(err error) int {
	code := exitOf(err)
	fields := map[string]any{"exit": code}
	if e, ok := errors.AsType[*holdfast.Error](err); ok && e.Holder != nil {
		fields["holder"] = newHolderJSON(e.Holder)
	}
	a.report("error", printable(strings.TrimPrefix(err.Error(), "holdfast: ")), fields)
	return code
}

// exitOf is the exit status of an error. What is no answer of a store counts
// as a store that cannot be used.
func exitOf(err error) int {
	// A place that is no store of locks: not a lock's conflict.
	if e, ok := errors.AsType[*holdfast.Error](err); ok && e.Op == "open" && errors.Is(err, holdfast.ErrConflict) {
		return exitUnavailable
	}
	if errors.Is(err, holdfast.ErrTimeout) && errors.Is(err, holdfast.ErrHeld) {
		return exitTimeout
	}
	for _, rule := range []struct {
		kind error
		code int
	}{
		{holdfast.ErrLost, exitLost},
		{holdfast.ErrNotHeld, exitNo},
		{holdfast.ErrInvalid, exitUsage},
		{holdfast.ErrUnsupported, exitUsage},
		{holdfast.ErrConflict, exitUsage},
		{holdfast.ErrHeld, exitBusy},
	} {
		if errors.Is(err, rule.kind) {
			return rule.code
		}
	}
	return exitUnavailable
}

// parseOwner reads the owner that a lease prints.
func parseOwner(s string) (o driver.Owner, err error) {
	return o, decodeHex(o[:], s)
}
