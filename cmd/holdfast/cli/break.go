package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// breakOptions are what holdfast break was asked to do.
type breakOptions struct {
	common
	name string
	holdfast.BreakOptions
}

func (a *app) breakMain(args []string) int {
	o, code, ok := a.parseBreak(args)
	if !ok {
		return code
	}
	client, err := a.openToLook(context.Background(), &o.common)
	if err != nil {
		return a.fail(err)
	}
	defer func() { _ = client.Close() }() // it holds nothing
	err = client.Break(context.Background(), o.name, o.BreakOptions)
	return a.tellBreak(o, err)
}

func (a *app) parseBreak(args []string) (o *breakOptions, code int, ok bool) {
	o = &breakOptions{}
	f := a.newFlags()
	f.common(&o.common)
	f.value("token", "the fencing `token` of the hold, as ls and show print it", func(s string) (err error) {
		if o.Token, err = strconv.ParseUint(s, 10, 63); err != nil || o.Token == 0 {
			err = errors.New("must be a number as show prints it")
		}
		return err
	})
	f.value("owner", "or its `owner`, 32 hexadecimal digits", func(s string) error {
		o.Owner = s
		_, err := parseOwner(s)
		return err
	})
	f.StringVar(&o.Reason, "reason", "", "why: the holder is told (`text`)")
	f.BoolVar(&o.Force, "force", false, "free the name at once: its holder and the next may then run together")
	rest, done := f.parse(args)
	if done {
		return nil, exitOK, false
	}
	o.name = f.name(rest)
	if o.Token == 0 && o.Owner == "" && len(f.problems) == 0 {
		f.problem("--token or --owner is missing: holdfast show NAME prints them")
	}
	if o.Reason == "" {
		f.problem("--reason is missing")
	}
	if most := holdfast.MaxLabelBytes; len(o.Reason) > most {
		f.problem("--reason: %d bytes, %d are allowed", len(o.Reason), most)
	}
	if f.failed() {
		return nil, exitUsage, false
	}
	o.By = a.whoami()
	return o, exitOK, true
}

// whoami is who breaks, for the holder and the records. It does not ask the
// user database: package os/user would link libc, which costs every start.
func (a *app) whoami() string {
	who := "uid " + strconv.Itoa(os.Getuid())
	if name := cmp.Or(a.getenv("SUDO_USER"), a.getenv("USER"), a.getenv("LOGNAME")); name != "" {
		who = name + ", " + who
	}
	if host, err := os.Hostname(); err == nil {
		who += " on " + host
	}
	return strings.ToValidUTF8(who[:min(len(who), 200)], "")
}

func (a *app) tellBreak(o *breakOptions, err error) int {
	name := printable(o.name)
	code, result, text := exitOK, "marked", name+" is marked as broken: it is free when its holder has stopped, or its lease has ended"
	switch {
	case err == nil && o.Force:
		result, text = "freed", name+" is free now; its holder may not know that yet, so that two may run for a while"
	case errors.Is(err, holdfast.ErrNotHeld):
		code, result, text = exitNo, "not held", name+" is not held; nothing was changed"
	case errors.Is(err, holdfast.ErrConflict) && !unusable(err):
		code, result, text = exitNo, "mismatch", name+" is held by another than that one; nothing was changed"
	case err != nil:
		return a.fail(err)
	}
	if a.json {
		a.print(map[string]any{"name": o.name, "result": result, "force": o.Force})
	} else if !a.quiet || code != exitOK {
		fmt.Fprintln(a.out, text)
	}
	return code
}
