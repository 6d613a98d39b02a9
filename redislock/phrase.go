package redislock

import (
	"encoding/hex"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// phrase puts the words of a call together in one text, since a text for each word
// would cost more than all else that a client does for a call.
type phrase struct {
	text []byte
	ends []int
}

var phrases = sync.Pool{New: func() any { return new(phrase) }}

func newPhrase() *phrase {
	return phrases.Get().(*phrase) //nolint:errcheck,forcetypeassert // nothing else is put there
}

// words ends the phrase.
func (p *phrase) words() []string {
	text, words, start := string(p.text), make([]string, len(p.ends)), 0
	for i, end := range p.ends {
		words[i] = text[start:end]
		start = end
	}
	p.text, p.ends = p.text[:0], p.ends[:0]
	phrases.Put(p)
	return words
}

// A word is one or several parts and then end.
func (p *phrase) end() { p.ends = append(p.ends, len(p.text)) }

func (p *phrase) part(text string) *phrase {
	p.text = append(p.text, text...)
	return p
}

func (p *phrase) word(text string) { p.part(text).end() }

func (p *phrase) number(n int) *phrase {
	p.text = strconv.AppendInt(p.text, int64(n), 10)
	return p
}

func (p *phrase) owner(o *driver.Owner) *phrase {
	p.text = hex.AppendEncode(p.text, o[:])
	return p
}

func (p *phrase) millis(d time.Duration) *phrase { return p.number(inMillis(d)) }

// padded is for times in a place, whose fields are where a script looks for them.
func (p *phrase) padded(d time.Duration) *phrase {
	start := len(p.text)
	p.part("00000000").millis(d)
	if digits := p.text[start+8:]; len(digits) < 8 {
		p.text = append(p.text[:start+8-len(digits)], digits...)
	} else {
		p.text = append(p.text[:start], digits...)
	}
	return p
}

// token is "" if it is not known.
func (p *phrase) token(token uint64) *phrase {
	if token > 0 {
		p.text = strconv.AppendUint(p.text, token, 10)
	}
	return p
}

func (p *phrase) record(tag, key string) { p.part("hf:").part(tag).part(":").part(key).end() }
func (p *phrase) bucket(tag string)      { p.part("hft:").part(tag).end() }

func (p *phrase) tomb(tag string, o *driver.Owner) {
	p.part("hfx:").part(tag).part(":").owner(o).end()
}

// script begins a call of a script with so many keys.
func (p *phrase) script(sc *script, keys int) {
	p.word("EVALSHA")
	p.word(sc.sha)
	p.number(keys).end()
}
