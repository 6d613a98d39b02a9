package redislock

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// probe asks the server about itself, teaches it the scripts, and states what
// can be promised, in one round trip.
func (s *store) probe(ctx context.Context, opts *Options) error {
	commands := []Command{
		command("INFO"),
		command("CONFIG", "GET", "appendfsync"),
		command("CONFIG", "GET", "maxmemory-policy"),
	}
	for _, sc := range scripts {
		commands = append(commands, command("SCRIPT", "LOAD", sc.text))
	}
	replies, err := s.send(ctx, commands...)
	if err != nil {
		return err
	}
	for i := range replies {
		// INFO and CONFIG may be forbidden; a script may be taught later, with its
		// first call.
		if err := replies[i].Err; err != nil && (s.Classify(err) != driver.Denied && s.Classify(err) != driver.Unsupported || i > 2) {
			return err
		}
	}
	found := settings{info: infoOf(replies[0].Text), fsync: configOf(&replies[1]), policy: configOf(&replies[2])}
	if found.info["cluster_enabled"] == "1" {
		return &driver.Failure{Kind: driver.Unsupported, Err: errors.New("redis: the server is part of a cluster, which redis:// does not speak to")}
	}
	class, warnings := found.judge(opts)
	s.props = driver.Properties{
		Store: "redis", Class: class, Bound: driver.ByLease, Wait: driver.ByPlaces,
		Abilities: driver.Abilities{Fair: true, Fencing: true, Shared: true, Permits: true, Handles: true, Break: true, List: true, Inspect: true},
		Names:     driver.Names{MaxBytes: maxKey}, Warnings: warnings,
	}
	return nil
}

// settings are what the server tells; what it does not is "".
type settings struct {
	info          map[string]string
	fsync, policy string
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
