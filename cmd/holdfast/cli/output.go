package cli

import (
	"encoding/json"
	"io"
)

// output is stdout. It keeps the first error, so that one check at the end does
// for all that is printed.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.to.Write(p)
	o.err = err
	return n, err
}

func (o *output) failed() bool { return o.err != nil }

// print prints one line of JSON.
func (a *app) print(v any) {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a.out keeps the error
}
