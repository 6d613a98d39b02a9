package redislock

import "context"

// Link is how the store reaches its servers: the little that a client library
// has to do for it. [New] makes one over rueidis; [Over] takes any other.
// All methods may be called from many goroutines at once.
type Link interface {
	// Do sends commands in one flush, in order, over one connection to the node
	// of their keys (which share a slot), and returns the answers in that order
	// and as many. It repeats a command only if a server surely refused it and
	// said where else to go (MOVED, ASK). It may return later than ctx ends, which
	// is seen to by the caller; ctx tells nothing in advance of its end.
	Do(ctx context.Context, commands ...Command) []Reply

	// DoApart is Do over a connection that others' commands are not behind, as a
	// WAIT blocks it. It follows no redirection: the answer refuses.
	DoApart(ctx context.Context, commands ...Command) []Reply

	// Masters lists the nodes that hold the data, each with a Do for it alone;
	// just itself where there is one.
	Masters(ctx context.Context) ([]Node, error)

	// Subscribe hears a channel, a sharded one on its node, until ctx ends or the
	// subscription fails, and leaves none behind. It calls ready when the
	// subscription stands, and again whenever it was made anew. Neither function
	// blocks.
	Subscribe(ctx context.Context, channel string, sharded bool, ready func(), heard func(message string)) error

	// Mode tells what the servers are to each other. It is constant.
	Mode() Mode

	// Dials counts connections of Do: it has grown before anything is sent on a
	// new one. False: the client does not tell.
	Dials() (count uint64, told bool)

	// Close closes the client if it was made for this store alone.
	Close()
}

// prompter is a Link whose Do can return as soon as ctx ends. Prompt gives the
// ctx to call it with then; false: this call may hang, e.g. while it dials.
type prompter interface {
	Prompt(ctx context.Context) (context.Context, bool)
}

// Node is one server.
type Node interface {
	Do(ctx context.Context, commands ...Command) []Reply
	Addr() string
}

// Mode is what the servers behind a client are to each other.
type Mode uint8

// The modes.
const (
	Single   Mode = iota // one server
	Sentinel             // a master that is failed over to its replicas
	Cluster              // many masters, each with some of the slots
)

// Command is one command as it is sent.
type Command struct {
	Words []string
	// Key is where in Words the first key is; 0: there is none.
	Key int
}

func command(words ...string) Command { return Command{Words: words} }

// Reply is the answer to one command, or to a part of it.
type Reply struct {
	// Err is a [ServerError] if the server refused, and anything else if there is
	// no answer: then the command may have been handled.
	Err  error
	Text string  // of a text
	Int  int64   // of a number
	List []Reply // of a list; of a map, keys and values in turn
	Null bool    // nothing
}

// ServerError is what a server said in refusing a command, or one request of a
// batch.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// pairs reads a list of keys and values.
func (r *Reply) pairs() map[string]string {
	m := make(map[string]string, len(r.List)/2)
	for i := 0; i+1 < len(r.List); i += 2 {
		m[r.List[i].Text] = r.List[i+1].Text
	}
	return m
}
