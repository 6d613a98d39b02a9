package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
)

// The exit statuses. Between 1 and 255 all others are a command's own.
const (
	exitOK          = 0
	exitNo          = 1   // the answer is no: not held, another hold, a law broken
	exitUsage       = 64  // the call can never work
	exitUnavailable = 69  // the store cannot be used
	exitInternal    = 70  // the guard could not be started
	exitOutput      = 74  // what was to be printed could not be written
	exitBusy        = 75  // somebody else holds the name
	exitTimeout     = 76  // the wait ran out
	exitLost        = 77  // the lock was lost
	exitMaxRun      = 124 // --max-run, as timeout(1)
	exitCannotRun   = 126 // as the shell
	exitNotFound    = 127
	exitSignal      = 128 // + n: died of signal n
)

// app is one call of the program.
type app struct {
	environ               []string
	stdin, stdout, stderr *os.File
	out                   *output // what we print on stdout

	command     string // the verb
	json, quiet bool
}

// verb is one command.
type verb struct {
	name, args, summary string
	main                func(*app, []string) int
}

// verbs is a func since the table and the completion, which prints it, refer to each
// other.
func verbs() []verb {
	return []verb{
		{"run", "NAME -- COMMAND [ARG...]", "run a command under the lock", (*app).runMain},
		{"cron", "NAME -- COMMAND [ARG...]", "the same for a job that many hosts start: one runs it, the others skip it", (*app).cronMain},
		{"elect", "NAME -- COMMAND [ARG...]", "run a command while leading, and again after each election", (*app).electMain},
		{"ls", "[PREFIX]", "list the names that are held or waited for", (*app).lsMain},
		{"show", "NAME", "show who holds a name and who waits for it", (*app).showMain},
		{"watch", "[PREFIX]", "print acquisitions, releases, breaks and new values as they happen", (*app).watchMain},
		{"break", "NAME --token N --reason TEXT", "revoke somebody's hold", (*app).breakMain},
		{"acquire", "NAME", "acquire and print a handle, for scripts", (*app).acquireMain},
		{"renew", "HANDLE", "extend the lease of a handle", (*app).renewMain},
		{"release", "HANDLE", "release the lease of a handle", (*app).releaseMain},
		{"check", "HANDLE", "tell whether a handle still holds", (*app).checkMain},
		{"doctor", "", "say what the store promises, and prove it", (*app).doctorMain},
		{"version", "", "print the version and the stores that are built in", (*app).versionMain},
		{"completion", "bash|zsh|fish", "print a completion script", (*app).completionMain},
	}
}

// Main is the program: args without its name, env as os.Environ gives it. It
// returns the exit status. A command that it runs gets stdin, stdout and
// stderr as they are.
func Main(args, env []string, stdin, stdout, stderr *os.File) int {
	a := &app{environ: env, stdin: stdin, stdout: stdout, stderr: stderr, out: &output{to: stdout}}
	code := a.main(args)
	switch {
	case a.out.err == nil:
	case errors.Is(a.out.err, syscall.EPIPE): // the reader has gone, as head does: that is no news
		code = cmp.Or(code, exitSignal+int(syscall.SIGPIPE))
	default:
		code = cmp.Or(code, exitOutput)
		a.report("error", "cannot write to stdout: "+a.out.err.Error(), map[string]any{"exit": code})
	}
	return code
}

func (a *app) main(args []string) int {
	if len(args) == 0 {
		a.usage(a.stderr)
		return exitUsage
	}
	switch args[0] {
	case "help", "--help", "-h", "-help":
		if len(args) == 1 {
			a.usage(a.out)
			return exitOK
		}
		args = []string{args[1], "--help"}
	case "--version", "-version":
		args = append([]string{"version"}, args[1:]...)
	}
	for _, v := range verbs() {
		if v.name == args[0] {
			a.command = v.name
			return v.main(a, args[1:])
		}
	}
	if strings.HasPrefix(args[0], "-") {
		fmt.Fprintf(a.stderr, "holdfast: flags come after the command: holdfast %s %s\n", a.firstVerb(args), printable(args[0]))
		return exitUsage
	}
	fmt.Fprintf(a.stderr, "holdfast: unknown command %q\n", args[0])
	a.usage(a.stderr)
	return exitUsage
}

// firstVerb is the command that flags were put before.
func (a *app) firstVerb(args []string) string {
	for _, arg := range args {
		if slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == arg }) {
			return arg
		}
	}
	return "COMMAND"
}

func (a *app) usage(to io.Writer) {
	fmt.Fprintln(to, "Usage: holdfast COMMAND [FLAG...]\n\nCommands:")
	for _, v := range verbs() {
		fmt.Fprintf(to, "  %-38s %s\n", strings.TrimSpace(v.name+" "+v.args), v.summary)
	}
	fmt.Fprintln(to, "\nholdfast COMMAND --help lists a command's flags.")
}

// getenv reads a variable of the environment that Main was given.
func (a *app) getenv(name string) string {
	value, _ := a.lookupEnv(name)
	return value
}

func (a *app) lookupEnv(name string) (value string, set bool) {
	for _, e := range a.environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value, set = v, true // the last one counts, as for the shell
		}
	}
	return value, set
}
