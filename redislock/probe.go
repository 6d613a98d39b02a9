package redislock

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// probe asks each server about itself, teaches it the scripts, and states what
// can be promised. It is one round trip a server.
func (s *store) probe(ctx context.Context, opts *Options) error {
	masters, err := prompt(ctx, &s.hands, s.link.Masters)
	if err != nil {
		return err
	}
	s.props = driver.Properties{
		Store: storeNames[s.link.Mode()], Class: driver.ClassC, Bound: driver.ByLease, Wait: driver.ByPlaces,
		Abilities: driver.Abilities{Fair: true, Fencing: true, Shared: true, Permits: true, Handles: true, Break: true, List: true, Inspect: true, Value: true},
		Names:     driver.Names{MaxBytes: maxKey},
	}
	if s.link.Mode() != Single || opts.Wait > 0 {
		s.props.Class = driver.ClassD // a failover may forget
	}
	s.sharded = s.cluster
	for _, node := range masters {
		found, err := s.ask(ctx, node)
		if refusal := found.refuse(s.link.Mode()); refusal != nil { // it says why other things failed
			return refusal
		}
		if err != nil {
			return err
		}
		s.sharded = s.sharded && found.shards()
		class, warnings := found.judge(opts)
		s.props.Class = min(s.props.Class, class)
		for _, warning := range warnings {
			if s.cluster {
				warning = node.Addr() + ": " + warning
			}
			s.props.Warnings = append(s.props.Warnings, warning)
		}
	}
	return nil
}

var storeNames = map[Mode]string{Single: "redis", Sentinel: "redis-sentinel", Cluster: "redis-cluster"}

// settings are what the server tells; what it does not is "".
type settings struct {
	info          map[string]string
	fsync, policy string
}

func (s *store) ask(ctx context.Context, node Node) (found settings, err error) {
	commands := []Command{
		command("INFO"),
		command("CONFIG", "GET", "appendfsync"),
		command("CONFIG", "GET", "maxmemory-policy"),
	}
	for _, sc := range scripts {
		commands = append(commands, command("SCRIPT", "LOAD", sc.text))
	}
	commands = append(commands, command("TIME"))
	sent := driver.Now()
	replies, err := prompt(ctx, &s.hands, func(ctx context.Context) ([]Reply, error) { return node.Do(ctx, commands...), nil })
	if err != nil {
		return found, err
	}
	last := len(replies) - 1
	s.clocks.seen(node.Addr(), replies[last], sent, driver.Now())
	replies = replies[:last]
	found = settings{info: infoOf(replies[0].Text), fsync: configOf(&replies[1]), policy: configOf(&replies[2])}
	for i := range replies {
		// INFO and CONFIG may be forbidden; a script may be taught later, with its
		// first call.
		if err := replies[i].Err; err != nil && (s.Classify(err) != driver.Denied && s.Classify(err) != driver.Unsupported || i > 2) {
			return found, err
		}
	}
	return found, nil
}

// shards tells whether the server has sharded messages.
func (f *settings) shards() bool {
	major, _, _ := strings.Cut(f.info["redis_version"], ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 7
}

// refuse tells a URL that does not fit the server.
func (f *settings) refuse(mode Mode) error {
	switch {
	case f.info["cluster_enabled"] == "1" && mode != Cluster:
		return failure(driver.Unsupported, "the server is part of a cluster: use redis+cluster://")
	case f.info["cluster_enabled"] == "0" && mode == Cluster:
		return failure(driver.Unsupported, "the server is not part of a cluster")
	case f.info["redis_mode"] == "sentinel":
		return failure(driver.Unsupported, "the server is a sentinel: use redis+sentinel://")
	}
	return nil
}

// judge finds the class, and what stands against a better one.
func (f *settings) judge(opts *Options) (class driver.Class, warnings []string) {
	warn := func(unsafe bool, text string) {
		if unsafe {
			warnings = append(warnings, text)
		}
	}
	aof := f.info["aof_enabled"]
	evicts := f.policy != "" && f.policy != "noeviction" && f.info["maxmemory"] != "0"
	silent := aof == "" || f.fsync == "" || f.policy == ""
	warn(aof == "0", "appendonly is off: a restart forgets every lock")
	warn(aof == "1" && f.fsync != "" && f.fsync != "always", "appendfsync is "+f.fsync+": a crash of the machine may forget locks that were granted")
	warn(evicts, "maxmemory-policy is "+f.policy+": locks may be evicted when memory is full")
	warn(silent && !opts.Durable, "the server does not tell its settings (INFO or CONFIG GET is forbidden): the worst is assumed")
	warn(f.info["role"] == "slave", "the server is a replica: it refuses every lock")
	if aof == "0" || evicts || f.fsync != "" && f.fsync != "always" || silent && !opts.Durable || f.info["role"] == "slave" {
		return driver.ClassD, warnings
	}
	return driver.ClassC, warnings
}

func infoOf(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}

// configOf is the one value of a CONFIG GET, "" if it is not told.
func configOf(r *Reply) string {
	for _, value := range r.pairs() {
		return value
	}
	return ""
}
