package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// buckets share the names out on so many counters and, in a cluster, slots.
	buckets = 1024
	// maxBatch keeps one script call under a few milliseconds.
	maxBatch = 256
	// maxKey is more than any prefix and name need, so that keys are never hashed.
	maxKey = 1024
)

// Options say what the server cannot. The zero value is right for most.
type Options struct {
	// Durable says that the operator vouches for appendfsync always and for no
	// eviction, where the server does not tell (CONFIG is forbidden). It changes
	// nothing where it tells.
	Durable bool
	// Wait is how many replicas must have received a grant or a renewal before
	// it counts: fewer make it ErrUnavailable, and a grant is released; a leader's
	// value is ErrIndeterminate then. The store is no stronger than class D by that;
	// see docs/store-redis.md.
	Wait int
}

// store is one client of the servers. Its id names the channels on which it is
// told of grants.
type store struct {
	link    Link
	id      string
	cluster bool
	wait    int  // Options.Wait
	sharded bool // messages stay on the node of their bucket
	props   driver.Properties

	prompter prompter // the link, if it is one
	bare     bare
	ears     ears
	clocks   clocks
	hands    hands
	waits    waits
}

var (
	_ driver.Queuer    = (*store)(nil)
	_ driver.Batcher   = (*store)(nil)
	_ driver.Sharder   = (*store)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Lister    = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
	_ driver.Valuer    = (*store)(nil)
	_ driver.Looker    = (*store)(nil)
)

// setUp is how long New may ask the server about itself.
const setUp = 5 * time.Second

// New makes a store over a client of the user's, which stays open when the store
// is closed. It asks the server for its settings. opts may be nil.
func New(client rueidis.Client, opts *Options) (driver.Store, error) {
	return Over(&rueidisLink{client: client}, opts)
}

// Over is [New] for other client libraries. Closing the store closes the link.
func Over(link Link, opts *Options) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUp)
	defer cancel()
	s, err := newStore(ctx, link, opts)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(ctx context.Context, link Link, opts *Options) (*store, error) {
	if opts == nil {
		opts = &Options{}
	}
	loadScripts()
	var id [8]byte
	rand.Read(id[:])
	s := &store{link: link, id: hex.EncodeToString(id[:]), cluster: link.Mode() == Cluster, wait: opts.Wait}
	s.prompter, _ = link.(prompter)
	s.ears.init(s)
	s.clocks.of, s.waits.of = map[string]reading{}, map[driver.Owner]driver.Ref{}
	s.hands.init()
	if err := s.probe(ctx, opts); err != nil {
		s.hands.close()
		return nil, err
	}
	if s.sharded {
		s.id = shardedMark + s.id
	}
	return s, nil
}

func (s *store) Properties() driver.Properties {
	p := s.props
	p.Warnings = append(slices.Clip(p.Warnings), s.clocks.told()...)
	return p
}

func (s *store) Close() error {
	s.ears.close()
	s.hands.close()
	s.link.Close()
	return nil
}

func (s *store) MaxBatch() int { return maxBatch }

// Shard keeps the buckets of a cluster apart: each has a slot of its own.
func (s *store) Shard(r driver.Ref) int {
	if !s.cluster {
		return 0
	}
	return bucketOf(r.Name.Key)
}

func bucketOf(key string) int {
	crc := ^uint32(0)
	for i := range len(key) { // as the package does it, which makes a copy of the text
		crc = crc32.IEEETable[crc&0xff^uint32(key[i])] ^ crc>>8
	}
	return int(^crc % buckets)
}

// The keys of a name are in one slot: its bucket is their hash tag. The scripts
// derive those of the queue (hfq), its places (hfp) and of shared holders (hfh) from the record's.
func tagOf(key string) string { return tags[bucketOf(key)] }

var tags = func() (t [buckets]string) {
	for i := range t {
		t[i] = "{" + strconv.Itoa(i) + "}"
	}
	return t
}()

// allKeys are those of a script that may touch them all. It names them so that none is
// half done while a slot moves to another node; acquire and release are safe
// from that, as they name the tomb, which hardly ever exists: a node that gives a slot away
// refuses a script of which it has some keys and not all.
func allKeys(key string) []string {
	tag := tagOf(key)
	return []string{recordKey(tag, key), bucketKey(tag), "hfq:" + tag + ":" + key, "hfp:" + tag + ":" + key, "hfh:" + tag + ":" + key}
}

func recordKey(tag, key string) string { return "hf:" + tag + ":" + key }
func bucketKey(tag string) string      { return "hft:" + tag }
func tombKey(tag, owner string) string { return "hfx:" + tag + ":" + owner }
func ownerText(o *driver.Owner) string { return hex.EncodeToString(o[:]) }
func inMillis(d time.Duration) int     { return int((d + time.Millisecond - 1) / time.Millisecond) }
func millis(d time.Duration) string    { return strconv.Itoa(inMillis(d)) }

func tokenText(token uint64) string {
	if token == 0 {
		return ""
	}
	return strconv.FormatUint(token, 10)
}

// shardedMark makes the id of a client one that sharded messages reach.
const shardedMark = "c"

// channel is where the grants of a bucket are told.
func (s *store) channel(tag string) string {
	if s.sharded {
		return "hfc:" + tag + ":" + s.id
	}
	return "hfc:" + s.id
}

// oneLine makes text for people fit into a record, whose lines have meanings.
func oneLine(text string) string {
	if !strings.ContainsAny(text, "\r\n") {
		return text
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
}

// keyTells tells whether the key says prefix and name, so that the record need not.
func keyTells(n *driver.Name) bool {
	return len(n.Key) == len(n.Prefix)+1+len(n.Full) && n.Key[:len(n.Prefix)] == n.Prefix && n.Key[len(n.Prefix)] == ':' && n.Key[len(n.Prefix)+1:] == n.Full
}
