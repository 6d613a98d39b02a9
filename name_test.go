package holdfast

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzNames: two pairs of prefix and name have one key only if they are equal,
// also on a store that folds case; a key keeps the store's limits.
func FuzzNames(f *testing.F) {
	f.Add("", "a", "", "b")
	f.Add("a", "b:c", "a:b", "c")
	f.Add("a", "b+c", "", "+b+c")
	f.Add("p", "x", "", "p:x")
	f.Add("", "A", "", "a")
	f.Add("", "ä", "", "a\u0308")
	f.Add("", "%41", "", "A")
	f.Add("", strings.Repeat("x", 512), "", strings.Repeat("x", 511)+"y")
	f.Add("", "../../etc/passwd", "", "..")
	f.Fuzz(func(t *testing.T, p1, n1, p2, n2 string) {
		for _, limits := range []driver.Names{{MaxBytes: 200, Portable: true}, {MaxBytes: 250}, {}} {
			k1, ok1 := key(limits, p1, n1)
			k2, ok2 := key(limits, p2, n2)
			if !ok1 || !ok2 {
				return
			}
			if limits.Portable {
				k1, k2 = strings.ToLower(k1), strings.ToLower(k2)
			}
			if (k1 == k2) != (p1 == p2 && n1 == n2) {
				t.Errorf("%q %q is %q, %q %q is %q", p1, n1, k1, p2, n2, k2)
			}
			if limits.MaxBytes > 0 && len(k1) > limits.MaxBytes {
				t.Errorf("key of %d bytes", len(k1))
			}
			if limits.Portable && strings.Trim(k1, "abcdefghijklmnopqrstuvwxyz0123456789._-%+~") != "" {
				t.Errorf("key %q is not portable", k1)
			}
		}
	})
}

func key(limits driver.Names, prefix, name string) (string, bool) {
	if !validPrefix(prefix) || validName(name) != nil || !utf8.ValidString(name) {
		return "", false
	}
	c := &Client{props: driver.Properties{Names: limits}, opts: Options{Prefix: prefix}}
	return c.storeName(name).Key, true
}

// Test vectors, as in docs/wire.md.
func TestNameVectors(t *testing.T) {
	for _, v := range []struct{ prefix, name, raw, portable string }{
		{"", "orders/42", ":orders/42", "+orders%2f42"},
		{"shop", "Draw 2026-11", "shop:Draw 2026-11", "shop+%44raw%202026-11"},
		{"Shop.1", "ä", "Shop.1:ä", "%53hop.1+%c3%a4"},
	} {
		raw, _ := key(driver.Names{}, v.prefix, v.name)
		portable, _ := key(driver.Names{Portable: true}, v.prefix, v.name)
		if raw != v.raw || portable != v.portable {
			t.Errorf("%q %q: %q, %q; want %q, %q", v.prefix, v.name, raw, portable, v.raw, v.portable)
		}
	}
}
