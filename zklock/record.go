package zklock

import (
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// What is written in the nodes, for people and, of a child, for its holder:
//
//	hf1 PREFIX:NAME     the name's node
//	hf1 LABEL           a hold or place
//	in                  it waited, and holds now (permits)
//	broken REASON       a person has revoked it
type record struct {
	label  string
	in     bool
	broken bool
	reason string
}

func (r *record) bytes() []byte {
	text := version + " " + oneLine(r.label)
	if r.in {
		text += "\nin"
	}
	if r.broken {
		text += "\nbroken " + oneLine(r.reason)
	}
	return []byte(text)
}

// parseRecord is false for data that is not ours.
func parseRecord(data []byte) (r record, ok bool) {
	first, rest, _ := strings.Cut(string(data), "\n")
	r.label, ok = strings.CutPrefix(first, version+" ")
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if reason, found := strings.CutPrefix(line, "broken "); found {
			r.broken, r.reason = true, reason
		}
		r.in = r.in || line == "in"
	}
	return r, ok
}

// named is the data of a name's node.
func named(n *driver.Name) []byte { return []byte(version + " " + n.Prefix + ":" + n.Full) }

// parseNamed is false for data that is not ours.
func parseNamed(data []byte) (prefix, full string, ok bool) {
	text, ok := strings.CutPrefix(string(data), version+" ")
	prefix, full, ok2 := strings.Cut(text, ":")
	return prefix, full, ok && ok2
}

// oneLine makes text for people fit into a record, whose lines have meanings.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
}
