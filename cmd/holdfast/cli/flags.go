package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// flags reads a command's flags and arguments. It goes on after a problem, so
// that all are told at once.
type flags struct {
	*flag.FlagSet
	a        *app
	problems []string
	unknown  bool // a flag was: what follows it may be its value, or an argument
}

// common are the flags of every command that talks to a store.
type common struct {
	store, prefix string
	source        string // who named the store: --store, HOLDFAST_STORE, or "" for nobody
}

// newFlags makes the flags that all commands have.
func (a *app) newFlags() *flags {
	f := &flags{FlagSet: flag.NewFlagSet(a.command, flag.ContinueOnError), a: a}
	f.SetOutput(io.Discard)
	f.BoolVar(&a.json, "json", false, "print JSON: tokens as decimal strings, times in milliseconds")
	return f
}

func (f *flags) common(c *common) {
	if env, set := f.a.lookupEnv(envStore); set {
		c.store, c.source = env, envStore
	}
	f.Func("store", "`URL` of the store; default $HOLDFAST_STORE, else files of this host", func(s string) error {
		c.store, c.source = s, "--store"
		return nil
	})
	f.StringVar(&c.prefix, "prefix", "", "keep apart from users of the store with another `prefix`")
	f.BoolVar(&f.a.quiet, "quiet", false, "print errors only")
}

func (f *flags) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// value defines a flag whose value parse reads.
func (f *flags) value(name, usage string, parse func(string) error) {
	f.Func(name, usage, func(s string) error {
		if err := parse(s); err != nil {
			f.problem("--%s %q: %v", name, s, err)
		}
		return nil
	})
}

// duration defines a flag for a span with bounds of the library's.
func (f *flags) duration(p *time.Duration, name string, least time.Duration, usage string) {
	f.value(name, usage, func(s string) (err error) {
		if *p, err = parseDuration(s); err == nil && (*p < least || *p > holdfast.MaxTTL) {
			err = fmt.Errorf("must be from %s to %s", human(least), human(holdfast.MaxTTL))
		}
		return err
	})
}

// eternity is as long as any span need be, so that sums of two are spans yet.
const eternity = 100 * 365 * 24 * time.Hour

// span defines a flag for any span, also 0.
func (f *flags) span(p *time.Duration, name, usage string) {
	f.value(name, usage, func(s string) (err error) {
		if *p, err = parseDuration(s); err == nil && *p < 0 {
			err = errors.New("must not be negative")
		}
		*p = min(*p, eternity)
		return err
	})
}

// integer defines a flag for a number from 1 on.
func (f *flags) integer(p *int, name string, most int, usage string) {
	f.value(name, usage, func(s string) (err error) {
		if *p, err = strconv.Atoi(s); err != nil || *p < 1 || *p > most {
			err = fmt.Errorf("must be a number from 1 to %d", most)
		}
		return err
	})
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, nerr := strconv.Atoi(s); nerr == nil {
			return 0, fmt.Errorf("a unit is missing, such as %ss or %sms", s, s)
		}
		return 0, errors.New("must be a duration such as 90s, 1m30s or 250ms")
	}
	return d, nil
}

// parse reads args; flags may stand before and after other arguments, but not
// after "--". It returns these. done says that help was asked for and printed.
func (f *flags) parse(args []string) (rest []string, done bool) {
	args, after, _ := cutDashes(args)
	rest, done = f.parseFlags(args)
	return append(rest, after...), done
}

func (f *flags) parseFlags(args []string) (rest []string, done bool) {
	for len(args) > 0 {
		err := f.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			f.help(f.a.out)
			return nil, true
		case err != nil:
			f.unreadable(args[len(args)-len(f.Args())-1], err)
		}
		args = f.Args()
		if err == nil && len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	return rest, false
}

// unreadable tells of a flag that package flag did not take, as it was given.
func (f *flags) unreadable(arg string, err error) {
	name, _, _ := strings.Cut(arg, "=")
	switch text := err.Error(); {
	case strings.HasPrefix(text, "flag provided but not defined"):
		f.unknown = true
		f.problem("unknown flag %s", printable(name))
	case strings.HasPrefix(text, "flag needs an argument"):
		f.problem("%s: its value is missing", printable(name))
	default: // a switch with a value that is neither true nor false, or ---
		f.problem("%s: cannot be read", printable(arg))
	}
}

// none refuses arguments where a command takes none.
func (f *flags) none(rest []string) {
	if len(rest) > 0 && !f.unknown {
		f.problem("too many arguments: %s", strings.Join(quoted(rest), " "))
	}
}

// one takes the only argument of a command.
func (f *flags) one(what string, rest []string) string {
	switch len(rest) {
	case 0:
		f.problem("the %s is missing", what)
		return ""
	case 1:
	default:
		f.none(rest[1:])
	}
	return rest[0]
}

// name takes a lock's name.
func (f *flags) name(rest []string) string {
	name := f.one("NAME", rest)
	switch {
	case len(rest) == 0:
	case name == "":
		f.problem("the name is empty")
	case len(name) > holdfast.MaxNameBytes:
		f.problem("the name has %d bytes, %d are allowed", len(name), holdfast.MaxNameBytes)
	case !utf8.ValidString(name):
		f.problem("the name is not valid UTF-8")
	}
	return name
}

func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strconv.Quote(w)
	}
	return out
}

// failed tells every problem; ok is true if there was none.
func (f *flags) failed() bool {
	if len(f.problems) == 0 {
		return false
	}
	a := f.a
	if a.json {
		a.report("usage", strings.Join(f.problems, "; "), map[string]any{"problems": f.problems, "exit": exitUsage})
		return true
	}
	for _, p := range f.problems {
		fmt.Fprintf(a.stderr, "holdfast %s: %s\n", a.command, p)
	}
	fmt.Fprintf(a.stderr, "Try: holdfast %s --help\n", a.command)
	return true
}

func (f *flags) help(to io.Writer) {
	for _, v := range verbs() {
		if v.name == f.a.command {
			fmt.Fprintf(to, "Usage: holdfast %s\n\n%s\n\nFlags:\n", strings.TrimSpace(v.name+" [FLAG...] "+v.args), capital(v.summary)+".")
		}
	}
	f.VisitAll(func(fl *flag.Flag) {
		value, usage := flag.UnquoteUsage(fl)
		// It stands before the text already.
		usage = strings.TrimPrefix(strings.Replace(usage, " ("+value+")", "", 1), value+": ")
		fmt.Fprintf(to, "  %-22s %s\n", strings.TrimSpace("--"+fl.Name+" "+value), usage)
	})
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
