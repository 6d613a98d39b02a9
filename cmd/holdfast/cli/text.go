package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast"
)

// printable shows a text that somebody else chose: what could steer a terminal
// or turn the order of characters is escaped as in Go.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\\' {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// short rounds a span for people.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Millisecond)
	}
	return human(d)
}

func permits(n int) string {
	if n == 1 {
		return "1 permit"
	}
	return strconv.Itoa(n) + " permits"
}

// human is a span without the zeros that its String ends in: 24h, not 24h0m0s.
func human(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// describeHolder is one line about who holds a name.
func describeHolder(h *holdfast.Holder) string {
	host, pid := whence(h.Label)
	words := []string{}
	if h.Label != "" {
		words = append(words, printable(h.Label))
	}
	if pid != 0 {
		words = append(words, "host "+printable(host), "pid "+strconv.Itoa(pid))
	}
	if h.Owner != "" {
		words = append(words, "owner "+h.Owner)
	}
	if h.Token != 0 {
		words = append(words, "token "+strconv.FormatUint(h.Token, 10))
	}
	if h.Mode == holdfast.Shared {
		words = append(words, "shared")
	}
	if h.Permits > 0 {
		words = append(words, permits(h.Permits))
	}
	if h.Owner != "" { // else nothing is known of the grant
		words = append(words, "for "+short(h.Held))
	}
	if h.Left > 0 {
		words = append(words, short(h.Left)+" of its TTL left")
	}
	if h.Value != "" {
		words = append(words, "says "+printable(h.Value))
	}
	if h.Broken != "" {
		words = append(words, "broken: "+printable(h.Broken))
	}
	return strings.Join(words, ", ")
}

// The JSON forms. Tokens are decimal strings, times whole milliseconds.
type (
	recordJSON struct {
		Name    string       `json:"name"`
		Mode    string       `json:"mode,omitempty"`
		Limit   int          `json:"limit,omitempty"`
		Holders []holderJSON `json:"holders"`
		Waiters []waiterJSON `json:"waiters,omitempty"`
	}
	holderJSON struct {
		Owner   string `json:"owner"`
		Label   string `json:"label,omitempty"`
		Host    string `json:"host,omitempty"`
		PID     int    `json:"pid,omitempty"`
		Token   string `json:"token"`
		Mode    string `json:"mode"`
		Permits int    `json:"permits,omitempty"`
		Held    int64  `json:"held_ms"`
		Left    int64  `json:"left_ms,omitempty"`
		Broken  string `json:"broken,omitempty"`
		Value   string `json:"value,omitempty"`
	}
	waiterJSON struct {
		Owner   string `json:"owner"`
		Label   string `json:"label,omitempty"`
		Mode    string `json:"mode"`
		Permits int    `json:"permits,omitempty"`
		Waited  int64  `json:"waited_ms"`
	}
)

func newRecordJSON(r *holdfast.Record) recordJSON {
	out := recordJSON{Name: r.Name, Limit: r.Limit, Holders: []holderJSON{}}
	if r.Mode != 0 {
		out.Mode = r.Mode.String()
	}
	for i := range r.Holders {
		out.Holders = append(out.Holders, newHolderJSON(&r.Holders[i]))
	}
	for _, w := range r.Waiters {
		out.Waiters = append(out.Waiters, waiterJSON{w.Owner, w.Label, w.Mode.String(), w.Permits, w.Waited.Milliseconds()})
	}
	return out
}

func newHolderJSON(h *holdfast.Holder) holderJSON {
	host, pid := whence(h.Label)
	return holderJSON{
		h.Owner, h.Label, host, pid, strconv.FormatUint(h.Token, 10), h.Mode.String(), h.Permits,
		h.Held.Milliseconds(), h.Left.Milliseconds(), h.Broken, h.Value,
	}
}

// say tells what goes on, on stderr.
func (a *app) say(event, text string, fields map[string]any) {
	if !a.quiet {
		a.report(event, text, fields)
	}
}

// report is say for what --quiet does not silence.
func (a *app) report(event, text string, fields map[string]any) {
	if !a.json {
		fmt.Fprintf(a.stderr, "holdfast: %s\n", text)
		return
	}
	if fields == nil {
		fields = map[string]any{}
	}
	fields["event"], fields["message"] = event, text
	enc := json.NewEncoder(a.stderr)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(fields)
}
