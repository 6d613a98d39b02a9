package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"hash/crc32"
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
}

// store is one client of the server. Its id names the channel on which it is
// told of grants.
type store struct {
	link  Link
	id    string
	props driver.Properties

	ears  ears
	hands hands
}

var (
	_ driver.Queuer    = (*store)(nil)
	_ driver.Batcher   = (*store)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Lister    = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
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
	if link.Mode() != Single {
		return nil, &driver.Failure{Kind: driver.Unsupported, Err: errors.New("redis: Sentinel and Cluster are not supported")}
	}
	var id [8]byte
	rand.Read(id[:])
	s := &store{link: link, id: hex.EncodeToString(id[:])}
	s.ears.init(s)
	s.hands.init()
	if err := s.probe(ctx, opts); err != nil {
		s.hands.close()
		return nil, err
	}
	return s, nil
}

func (s *store) Properties() driver.Properties { return s.props }

func (s *store) Close() error {
	s.ears.close()
	s.hands.close()
	s.link.Close()
	return nil
}

func (s *store) MaxBatch() int { return maxBatch }

// The keys of a name are in one slot: its bucket is their hash tag. The scripts
// derive those of the queue (hfq) and of shared holders (hfh) from the record's.
func tagOf(key string) string {
	return "{" + strconv.Itoa(int(crc32.ChecksumIEEE([]byte(key))%buckets)) + "}"
}

func recordKey(tag, key string) string { return "hf:" + tag + ":" + key }
func bucketKey(tag string) string      { return "hft:" + tag }
func tombKey(tag, owner string) string { return "hfx:" + tag + ":" + owner }
func channelOf(id string) string       { return "hfc:" + id }
func ownerText(o *driver.Owner) string { return hex.EncodeToString(o[:]) }
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

func tokenText(token uint64) string {
	if token == 0 {
		return ""
	}
	return strconv.FormatUint(token, 10)
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

// named is what the record says of the name beside its key: nothing, if the key
// tells both.
func named(n *driver.Name) string {
	if len(n.Key) == len(n.Prefix)+1+len(n.Full) && n.Key[:len(n.Prefix)] == n.Prefix && n.Key[len(n.Prefix)] == ':' && n.Key[len(n.Prefix)+1:] == n.Full {
		return ""
	}
	return "\n" + n.Prefix + ":" + n.Full
}
