package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

func (a *app) doctorMain(args []string) int {
	var c common
	f := a.newFlags()
	f.common(&c)
	rest, done := f.parse(args)
	if done {
		return exitOK
	}
	f.none(rest)
	if f.failed() {
		return exitUsage
	}
	signals := catchSignals()
	defer signals.stop()
	ctx, stop := signals.context()
	defer stop()
	d, err := a.examine(ctx, &c)
	if ctx.Err() != nil {
		return a.interrupted(ctx, "")
	}
	switch {
	case a.out.failed():
		return exitOK // Main tells
	case err != nil:
		return a.fail(err)
	case a.json:
		a.print(d)
	default:
		a.printVerdict(d)
	}
	if !d.OK {
		return exitNo
	}
	return exitOK
}

// diagnosis is what doctor found.
type diagnosis struct {
	Store     string      `json:"store"`
	URL       string      `json:"url"`
	Class     string      `json:"class"`
	Promise   string      `json:"promise"`
	LivesBy   string      `json:"lives_by"`
	OneHost   bool        `json:"one_host"`
	Process   bool        `json:"one_process,omitempty"`
	Abilities []string    `json:"abilities"`
	Missing   []string    `json:"missing"`
	Warnings  []string    `json:"warnings"`
	Laws      []lawResult `json:"laws"`
	OK        bool        `json:"ok"`
}

// lawResult is one case of the conformance suite.
type lawResult struct {
	ID      string `json:"id"`
	Law     string `json:"law"`
	Rule    string `json:"rule"`
	OK      bool   `json:"ok"`
	Skipped string `json:"skipped,omitempty"`
	Error   string `json:"error,omitempty"`
}

// examine looks at the store's promises and proves them on it.
func (a *app) examine(ctx context.Context, c *common) (*diagnosis, error) {
	client, at, err := a.open(ctx, c, holdfast.Options{})
	if err != nil {
		return nil, err
	}
	d := describe(client.Properties(), at)
	if cerr := client.Close(); cerr != nil {
		return nil, cerr
	}
	if !a.json {
		a.printPromises(d)
	}
	u, remove, err := proofURL(at)
	if err != nil {
		return nil, err
	}
	defer remove()
	w, err := a.witness(ctx, u, d)
	if err != nil {
		return nil, err
	}
	defer w.end()
	return d, a.prove(ctx, u, d, w)
}

// prove runs the quick cases of the suite. Its error says that none could be run.
func (a *app) prove(ctx context.Context, u *url.URL, d *diagnosis, w *witness) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !a.json {
		a.printProof(d)
	}
	harness := drivertest.Harness{New: func(ctx context.Context) (driver.Store, error) { return driver.Open(ctx, u, nil) }}
	err := drivertest.Check(ctx, harness, func(r drivertest.Result) {
		law := lawResult{ID: r.ID, Law: r.Law, Rule: r.Rule, OK: r.Err == nil, Skipped: r.Skipped}
		if r.Err != nil {
			law.Error = r.Err.Error()
		}
		d.Laws = append(d.Laws, law)
		if !a.json {
			a.printLaw(&law)
		}
		w.look(ctx, false)
		if a.out.failed() { // nobody reads the rest
			cancel()
		}
	})
	w.look(ctx, true)
	d.OK = err == nil
	if err != nil && len(d.Laws) == 0 {
		return &holdfast.Error{Op: "doctor", Store: d.Store, Kind: holdfast.ErrUnavailable, Err: err}
	}
	return nil
}

// witness is a client that is open during the proof. It tells first whether the store lets
// us lock at all, and then what has become unsafe meanwhile, such as a clock that was set.
type witness struct {
	a      *app
	d      *diagnosis
	client *holdfast.Client
}

func (a *app) witness(ctx context.Context, u *url.URL, d *diagnosis) (*witness, error) {
	client, err := holdfast.Open(ctx, u.String(), &holdfast.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	w := &witness{a, d, client}
	lease, err := client.TryAcquire(ctx, fmt.Sprintf("conformance/doctor/%d-%d", os.Getpid(), time.Now().UnixNano()), nil)
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

// lastLook bounds it.
const lastLook = 5 * time.Second

// look tells what is new; again: what the servers say now.
func (w *witness) look(ctx context.Context, again bool) {
	if looker, ok := w.client.Store().(driver.Looker); ok && again {
		short, cancel := context.WithTimeout(ctx, lastLook)
		_ = looker.LookAgain(short) // whoever does not answer has broken rules enough
		cancel()
	}
	for _, warning := range w.client.Properties().Warnings {
		if slices.Contains(w.d.Warnings, warning) {
			continue
		}
		w.d.Warnings = append(w.d.Warnings, warning)
		if !w.a.json {
			w.a.printWarning(warning)
		}
	}
}

func (w *witness) end() { _ = w.client.Close() }

// proofURL is where the rules are proved: on the file store in a directory of
// its own within the store's, which remove takes away; on others among the
// names that begin with "conformance/", which nobody else uses.
func proofURL(at place) (u *url.URL, remove func(), err error) {
	if u, err = url.Parse(at.url); err != nil {
		return nil, nil, err
	}
	query := u.Query()
	query.Del("prefix") // the library's, not the store's
	u.RawQuery = query.Encode()
	if !at.oneHost() {
		return u, func() {}, nil
	}
	dir, err := os.MkdirTemp(u.Path, "holdfast-doctor-")
	if err != nil {
		return nil, nil, &holdfast.Error{Op: "doctor", Store: "file", Kind: holdfast.ErrDenied, Err: err}
	}
	u.Path = dir
	return u, func() { _ = os.RemoveAll(dir) }, nil
}

// classWords say what a guarantee class means.
var classWords = map[driver.Class]string{
	driver.ClassNone: "nothing is promised: when the store is down, everybody gets in",
	driver.ClassD:    "best effort: a fault that is documented may let two in",
	driver.ClassC:    "one server and a lease: two never hold a name while the server keeps its data and its clock is not set",
	driver.ClassB:    "one server and a session: two never hold a name while the server lives",
	driver.ClassA:    "consensus: two never hold a name while a majority of the servers lives",
}

func describe(p driver.Properties, at place) *diagnosis {
	d := &diagnosis{
		Store: p.Store, URL: at.shown, Class: p.Class.String(), Promise: classWords[p.Class], OneHost: p.OneHost, Process: at.onlyOurs(),
		LivesBy:  "a lease: a dead holder's lock is free when its TTL is over",
		Warnings: append([]string{}, p.Warnings...), Abilities: []string{}, Missing: []string{}, Laws: []lawResult{},
	}
	switch {
	case p.Bound == driver.ByConnection && p.MaxTTL > 0:
		d.LivesBy = "the holder's session: a dead holder's lock is free when that has run out"
	case p.Bound == driver.ByConnection:
		d.LivesBy = "the holder's process or connection: the lock is free when that ends"
	}
	for _, ability := range []struct {
		name string
		has  bool
	}{
		{"fencing tokens", p.Fencing},
		{"waiters in order of arrival", p.Fair},
		{"shared holds", p.Shared},
		{"semaphores", p.Permits},
		{"handles", p.Handles},
		{"break", p.Break},
		{"list", p.List},
		{"inspect", p.Inspect},
	} {
		list := &d.Missing
		if ability.has {
			list = &d.Abilities
		}
		*list = append(*list, ability.name)
	}
	return d
}

func (a *app) printPromises(d *diagnosis) {
	out := a.out
	fmt.Fprintf(out, "store     %s, %s\n", d.Store, printable(d.URL))
	fmt.Fprintf(out, "class     %s: %s\n", d.Class, d.Promise)
	fmt.Fprintf(out, "lives by  %s\n", d.LivesBy)
	switch {
	case d.Process:
		fmt.Fprintln(out, "reach     this process only: run, cron and acquire refuse it")
	case d.OneHost:
		fmt.Fprintln(out, "reach     this host only: processes of other hosts are not excluded")
	}
	fmt.Fprintf(out, "has       %s\n", cmp.Or(strings.Join(d.Abilities, ", "), "nothing beside an exclusive lock"))
	if len(d.Missing) > 0 {
		fmt.Fprintf(out, "has not   %s\n", strings.Join(d.Missing, ", "))
	}
	for _, w := range d.Warnings {
		a.printWarning(w)
	}
}

func (a *app) printWarning(text string) { fmt.Fprintf(a.out, "unsafe    %s\n", printable(text)) }

func (a *app) printProof(d *diagnosis) {
	where := ""
	if d.Store == "file" {
		where = ", in a directory of its own within the store's"
	}
	fmt.Fprintf(a.out, "\nProof, with two clients%s:\n", where)
}

func (a *app) printLaw(l *lawResult) {
	switch {
	case l.Skipped != "":
		fmt.Fprintf(a.out, "  skipped  %-6s %s (%s)\n", l.ID, l.Rule, l.Skipped)
	case l.OK:
		if !a.quiet {
			fmt.Fprintf(a.out, "  holds    %-6s %s\n", l.ID, l.Rule)
		}
	default:
		fmt.Fprintf(a.out, "  BROKEN   %-6s %s\n           %s\n", l.ID, l.Rule, strings.ReplaceAll(printable(l.Error), "\\n", "\n           "))
	}
}

func (a *app) printVerdict(d *diagnosis) {
	broken, skipped := 0, 0
	for i := range d.Laws {
		switch {
		case d.Laws[i].Skipped != "":
			skipped++
		case !d.Laws[i].OK:
			broken++
		}
	}
	text := fmt.Sprintf("\n%d rules hold", len(d.Laws)-broken-skipped)
	if broken > 0 {
		text += fmt.Sprintf(", broken: %d", broken)
	}
	if skipped > 0 {
		text += fmt.Sprintf(", skipped: %d", skipped)
	}
	if len(d.Warnings) > 0 {
		text += fmt.Sprintf("; unsafe settings: %d, see above", len(d.Warnings))
	}
	fmt.Fprintln(a.out, text+".")
}
