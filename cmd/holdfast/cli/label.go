package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// ownLabel says who we are: the host, the command and the wrapper's pid.
func ownLabel(command string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	pid := fmt.Sprintf("[%d]", os.Getpid())
	name := strings.ToValidUTF8(filepath.Base(command), "?")
	most := holdfast.MaxLabelBytes - len(pid) - 1
	label := host + "/" + name
	if len(label) > most {
		label = strings.ToValidUTF8(label[:most], "")
	}
	return label + pid
}

// whence reads host and pid out of a label of the form that ownLabel and the
// library give, HOST/COMMAND[PID]; "" and 0 if it is another. A label that a
// person chose may look like one, but says nothing else then.
func whence(label string) (host string, pid int) {
	host, rest, ok := strings.Cut(label, "/")
	command, digits, ok2 := cutLast(rest, "[")
	digits, ok3 := strings.CutSuffix(digits, "]")
	pid, err := strconv.Atoi(digits)
	if !ok || !ok2 || !ok3 || err != nil || pid <= 0 || strconv.Itoa(pid) != digits ||
		host == "" || strings.ContainsAny(host, " \t") || command == "" || strings.Contains(command, "/") {
		return "", 0
	}
	return host, pid
}

// cutLast is strings.Cut at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// cutBy parts a reason from who gave it, as Client.Break joins them.
func cutBy(text string) (reason, who string) {
	reason, rest, ok := cutLast(text, " (by ")
	if by, closed := strings.CutSuffix(rest, ")"); ok && closed {
		return reason, by
	}
	return text, ""
}
