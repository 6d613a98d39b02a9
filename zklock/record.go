package zklock

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// What is written in the nodes, for people and, of a child, for its holder:
//
//	hf1 PREFIX:NAME     the name's node
//	hf1 LABEL           a hold or place
//	in                  it waited, and holds now (permits)
//	broken REASON       a person has revoked it
//	value SEQ VALUE     what its holder says of himself
type record struct {
	label  string
	in     bool
	broken bool
	reason string
	seq    uint64
	value  string
}

func (r *record) bytes() []byte {
	text := version + " " + oneLine(r.label)
	if r.in {
		text += "\nin"
	}
	if r.broken {
		text += "\nbroken " + oneLine(r.reason)
	}
	if r.seq > 0 {
		text += "\nvalue " + strconv.FormatUint(r.seq, 10) + " " + r.value
	}
	return []byte(text)
}

// parseRecord reads what it knows of a record.
func parseRecord(data []byte) (r record) {
	first, rest, _ := strings.Cut(string(data), "\n")
	r.label = strings.TrimPrefix(first, version+" ")
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if reason, found := strings.CutPrefix(line, "broken "); found {
			r.broken, r.reason = true, reason
		}
		if value, found := strings.CutPrefix(line, "value "); found {
			seq, text, _ := strings.Cut(value, " ")
			r.seq, _ = strconv.ParseUint(seq, 10, 64) // none, if it is no number
			r.value = text
		}
		r.in = r.in || line == "in"
	}
	return r
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
