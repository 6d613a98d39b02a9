package cli

import (
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"syscall"
)

// program is a command that was looked up.
type program struct {
	path string
	argv []string
}

// defaultPath is searched where PATH is not set, as by sh.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookUp finds the program of a command as the shell does; code is 126 or 127
// if it cannot be run, and why says it.
func (a *app) lookUp(argv []string, shell bool) (p program, code int, why string) {
	if shell {
		return program{"/bin/sh", append([]string{"sh", "-c", argv[0], "sh"}, argv[1:]...)}, 0, ""
	}
	if strings.Contains(argv[0], "/") {
		return found(argv[0], argv, executable(argv[0]))
	}
	search := a.getenv("PATH")
	if search == "" {
		search = defaultPath
	}
	var first error = syscall.ENOENT
	for dir := range strings.SplitSeq(search, ":") {
		path := dir + "/" + argv[0]
		if dir == "" {
			path = "./" + argv[0]
		}
		err := executable(path)
		if err == nil {
			return found(path, argv, nil)
		}
		if errors.Is(err, syscall.EACCES) {
			first = err
		}
	}
	return found(argv[0], argv, first)
}

func found(path string, argv []string, err error) (program, int, string) {
	if err == nil {
		return program{path, argv}, 0, ""
	}
	code, why := startFailure(err)
	return program{}, code, printable(argv[0]) + ": " + why
}

// startFailure is the shell's view of an error of exec.
func startFailure(err error) (code int, why string) {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return exitNotFound, "command not found"
	}
	return exitCannotRun, "cannot be run: " + err.Error()
}

// deadScript is the shell's view of a file that is there, though exec says that
// it is not: what is to run it is missing.
func deadScript(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "its interpreter does not exist"
	}
	defer f.Close() //nolint:errcheck // it was only read
	line := make([]byte, 256)
	n, _ := f.Read(line)
	first, _, _ := strings.Cut(string(line[:n]), "\n")
	script, ok := strings.CutPrefix(first, "#!")
	words := strings.Fields(script)
	if !ok || len(words) == 0 {
		return "its interpreter does not exist"
	}
	return "its interpreter " + printable(words[0]) + " does not exist"
}

// executable tells why a file is no program that we may run; nil if it is.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			return errno
		}
		return err
	}
	if info.IsDir() {
		return syscall.EACCES
	}
	const mayExecute = 1 // X_OK
	return syscall.Access(path, mayExecute)
}

var errHex = errors.New("must be 32 hexadecimal digits")

func decodeHex(dst []byte, s string) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(dst) {
		return errHex
	}
	copy(dst, b)
	return nil
}
