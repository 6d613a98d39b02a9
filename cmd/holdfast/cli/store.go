package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filelock"
)

// place is where locks are: the URL to open, and the one that may be shown.
type place struct {
	url, shown string
}

// envStore names the store where no flag does.
const envStore = "HOLDFAST_STORE"

func (p place) oneHost() bool { return strings.HasPrefix(p.url, "file:") }

// onlyOurs tells whether the store is of this process alone. A lock that ends
// with the command that took it, and that nobody else can see, excludes nobody.
func (p place) onlyOurs() bool { return strings.HasPrefix(p.url, "memory:") }

// reachable refuses a store that nobody else can see.
func (c *common) reachable(f *flags) {
	if c.source == "" {
		return
	}
	if at, err := c.place(); err == nil && at.onlyOurs() {
		f.problem("%s", onlyOurs)
	}
}

const onlyOurs = "memory:// excludes nobody here: each process has its own; name a store that others reach too"

// place finds the store that was asked for: the default is the files of this
// host and user.
func (c *common) place() (place, error) {
	raw := c.store
	if c.source == "" {
		dir, err := filelock.DefaultDir()
		if err != nil {
			return place{}, noDefault(err)
		}
		raw = (&url.URL{Scheme: "file", Path: dir}).String()
	}
	u, err := url.Parse(raw)
	if err = c.misnamed(u, err); err != nil {
		return place{}, &holdfast.Error{Op: "open", Kind: holdfast.ErrInvalid, Err: err}
	}
	if c.prefix != "" {
		query := u.Query()
		query.Set("prefix", c.prefix)
		u.RawQuery = query.Encode()
	}
	return place{u.String(), withoutSecrets(u)}, nil
}

// misnamed tells what is wrong with a URL; where it came from, and no secret.
func (c *common) misnamed(u *url.URL, parse error) error {
	switch {
	case c.source != "" && c.store == "":
		return fmt.Errorf("%s is empty: name a store such as file:///dir", c.source)
	case parse != nil || u.Scheme == "":
		// Not the parser's error: it quotes the URL, with its password.
		return fmt.Errorf("%s is %q: not a URL such as file://%s", c.source, redacted(c.store), cmp.Or(absolute(redacted(c.store)), "/dir"))
	case !slices.Contains(driver.Schemes(), u.Scheme):
		return fmt.Errorf("%s has the unknown scheme %q; this holdfast has %s", c.source, u.Scheme, strings.Join(driver.Schemes(), ", "))
	case u.Scheme == "file" && path.Clean(u.Path) == "/":
		return fmt.Errorf("%s is the root directory, which is no place for locks: name one of its own, such as file:///run/lock/shop", c.source)
	}
	return nil
}

// redacted is a text that was to be a URL, without what may be a secret of it.
func redacted(s string) string {
	if i := strings.LastIndex(s, "@"); i >= 0 {
		s = "…" + s[i:]
	}
	if i := strings.IndexAny(s, "?#:"); i >= 0 {
		s = s[:i+1] + "…"
	}
	return s
}

func absolute(s string) string {
	if path.IsAbs(s) {
		return s
	}
	return ""
}

// noDefault tells why there is no default store, and what would help.
func noDefault(err error) error {
	kind := holdfast.ErrUnavailable
	if driver.KindOf(err) == driver.Denied {
		kind = holdfast.ErrDenied
	}
	for _, parent := range []string{"/run/lock", "/tmp"} {
		dir := fmt.Sprintf("%s/holdfast-%d", parent, os.Getuid())
		info, serr := os.Lstat(dir)
		if serr == nil && info.IsDir() && info.Mode().Perm()&0o077 != 0 && strings.Contains(err.Error(), dir+" ") {
			err = fmt.Errorf("%w; to keep them out: chmod 700 %s", err, dir)
		}
	}
	return &holdfast.Error{Op: "open", Store: "file", Kind: kind, Err: err}
}

// withoutSecrets is a URL as a child may see it: it still opens the store where
// the secret comes from elsewhere.
func withoutSecrets(u *url.URL) string {
	public := *u
	if public.User = nil; u.User.Username() != "" {
		public.User = url.User(u.User.Username())
	}
	query := public.Query()
	for key := range query {
		if strings.HasSuffix(key, "-file") { // it names where the secret is
			continue
		}
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

// warnOf tells what is unsafe about the store.
func (a *app) warnOf(client *holdfast.Client) {
	for _, warning := range client.Properties().Warnings {
		a.say("warning", printable(warning), nil)
	}
}

// openToLook is open for commands that take no lock: they make no directory,
// so that a name that was mistyped is an error and not an empty store.
func (a *app) openToLook(ctx context.Context, c *common) (*holdfast.Client, error) {
	at, err := c.place()
	if err != nil {
		return nil, err
	}
	if u, perr := url.Parse(at.url); perr == nil && u.Scheme == "file" && path.IsAbs(u.Path) {
		if _, serr := os.Lstat(u.Path); errors.Is(serr, os.ErrNotExist) {
			return nil, &holdfast.Error{Op: "open", Store: "file", Kind: holdfast.ErrUnavailable, Err: errors.New("no such directory: " + u.Path)}
		}
	}
	client, _, err := a.open(ctx, c, holdfast.Options{})
	return client, err
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
	if unusable(err) {
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

// unusable tells whether what is at the store's path, or at a name's, is no
// store or lock, or is damaged. Stores call that a conflict, as they do a name
// that is held as another kind.
func unusable(err error) bool {
	e, ok := errors.AsType[*holdfast.Error](err)
	if !ok || !errors.Is(err, holdfast.ErrConflict) {
		return false
	}
	if _, ok = errors.AsType[*driver.Failure](err); !ok {
		return e.Op == "open"
	}
	r, ok := errors.AsType[*refusedError](err)
	return e.Op != "acquire" || ok && (r.record == nil || len(r.record.Holders) == 0)
}

// parseOwner reads the owner that a lease prints.
func parseOwner(s string) (o driver.Owner, err error) {
	return o, decodeHex(o[:], s)
}
