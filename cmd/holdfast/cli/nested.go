package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/guard"
)

// enclosing is a live run of the same name in the same store around this one.
type enclosing struct {
	env []string // the variables that it gave its command
}

// enclosing looks for one. A variable proves nothing: it may have come from a
// run long over, through a terminal multiplexer or a service manager. So the
// guard has to be our ancestor, the process that it started has to carry the
// owner, and the store has to say that this owner holds the name: then it is the
// same store, though its URL may be spelled otherwise. It returns nil if there is
// none.
func (a *app) enclosing(o *runOptions) (*enclosing, error) {
	if a.getenv("HOLDFAST_OWNER") == "" {
		return nil, nil //nolint:nilnil // documented: there is none
	}
	at, err := o.place()
	if err != nil {
		return nil, err
	}
	for pid := os.Getpid(); pid > 1; {
		parent := guard.Parent(pid)
		if guard.Is(parent) {
			env := environOf(pid)
			if env["HOLDFAST_NAME"] == o.name && sameStore(env["HOLDFAST_STORE"], at.shown) {
				return a.proven(o, env)
			}
		}
		pid = parent
	}
	return nil, nil //nolint:nilnil // documented: there is none
}

// sameStore tells whether two URLs may mean the same store. Those of a file store
// do if they lead to the same directory.
func sameStore(a, b string) bool {
	u, err1 := url.Parse(a)
	v, err2 := url.Parse(b)
	if err1 != nil || err2 != nil || u.Scheme != v.Scheme {
		return a == b
	}
	if u.Scheme == "file" {
		p, err1 := os.Stat(u.Path)
		q, err2 := os.Stat(v.Path)
		same := err1 == nil && err2 == nil && os.SameFile(p, q) || path.Clean(u.Path) == path.Clean(v.Path)
		return same && u.Query().Get("prefix") == v.Query().Get("prefix")
	}
	for _, w := range []*url.URL{u, v} {
		w.Host, w.Path, w.RawPath = strings.ToLower(w.Host), path.Clean("/"+w.Path), ""
		w.RawQuery = w.Query().Encode() // in the order of the keys
	}
	return u.String() == v.String()
}

// proven asks the store whether the owner of an enclosing run holds the name.
func (a *app) proven(o *runOptions, env map[string]string) (*enclosing, error) {
	client, _, err := a.open(context.Background(), &o.common, holdfast.Options{TTL: o.lock.ttl})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }() // it held nothing
	record, err := client.Inspect(context.Background(), o.name)
	if err != nil && !errors.Is(err, holdfast.ErrUnsupported) {
		return nil, err
	}
	holds := errors.Is(err, holdfast.ErrUnsupported) // then the living guard has to do
	for i := range record.Holders {
		h := &record.Holders[i]
		if h.Owner != env["HOLDFAST_OWNER"] {
			continue
		}
		holds = true
		if why := uncovered(&record, h, o); why != "" {
			return nil, &holdfast.Error{Op: "run", Name: o.name, Kind: holdfast.ErrConflict, Err: errors.New("an enclosing run " + why)}
		}
	}
	if !holds {
		return nil, nil //nolint:nilnil // documented: there is none
	}
	e := &enclosing{}
	for _, name := range []string{"HOLDFAST_NAME", "HOLDFAST_TOKEN", "HOLDFAST_OWNER", "HOLDFAST_STORE"} {
		e.env = append(e.env, name+"="+env[name])
	}
	return e, nil
}

// uncovered tells why an enclosing hold is not what a run asks for; "" if it is.
func uncovered(r *holdfast.Record, h *holdfast.Holder, o *runOptions) string {
	switch slots := o.lock.slots; {
	case r.Limit > 0 && slots == 0:
		return "holds a permit of it: the name is a semaphore, not a lock"
	case r.Limit == 0 && slots > 0:
		return "holds it as a lock: it is no semaphore"
	case r.Limit != slots:
		return fmt.Sprintf("holds one of %d permits of it, not of %d", r.Limit, slots)
	case h.Mode == holdfast.Shared && !o.lock.shared:
		return "holds it shared: waiting for it would never end"
	}
	return ""
}

// environOf reads the environment that a process was started with; nil if we
// may not.
func environOf(pid int) map[string]string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	env := map[string]string{}
	for e := range strings.SplitSeq(string(b), "\x00") {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	return env
}
