package holdfast

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/holdfast-go/holdfast/driver"
)

// storeName maps a name one to one into what the store allows (docs/wire.md).
//
// Raw keys are prefix ":" name; a prefix holds no ":", so two pairs never meet.
// Portable keys escape every byte that is not a-z, 0-9, '.', '_' or '-' as %xx,
// capitals too, since some stores fold case, and have "+" for the ":". What is
// too long becomes a mark that no other key begins with, and a SHA-256.
func (c *Client) storeName(name string) driver.Name {
	n := driver.Name{Full: name, Prefix: c.opts.Prefix}
	limits, mark := c.props.Names, "#"
	if limits.Portable {
		mark = "~"
		n.Key = escape(n.Prefix) + "+" + escape(name)
	} else {
		n.Key = n.Prefix + ":" + name
	}
	if limits.MaxBytes > 0 && len(n.Key) > limits.MaxBytes {
		sum := sha256.Sum256([]byte(n.Prefix + ":" + name))
		n.Key = mark + hex.EncodeToString(sum[:])
	}
	return n
}

// plain are the bytes that a portable key may hold as they are.
var plain = func() (set [256]bool) {
	for _, b := range []byte("abcdefghijklmnopqrstuvwxyz0123456789._-") {
		set[b] = true
	}
	return set
}()

func escape(s string) string {
	odd := 0
	for i := range len(s) {
		if !plain[s[i]] {
			odd++
		}
	}
	if odd == 0 {
		return s
	}
	out := make([]byte, 0, len(s)+2*odd)
	for i := range len(s) {
		if plain[s[i]] {
			out = append(out, s[i])
			continue
		}
		const digits = "0123456789abcdef"
		out = append(out, '%', digits[s[i]>>4], digits[s[i]&15])
	}
	return string(out)
}
