package redislock

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

func failure(kind driver.Kind, text string) error {
	return &driver.Failure{Kind: kind, Err: errors.New("redis: " + text)}
}

// notSent is an error of a ctx that had ended before anything was sent.
func notSent(err error) error { return &driver.Failure{Kind: driver.Canceled, Err: err} }

// refusals are the server's words for "I did not do it", by what they mean. Our
// scripts make no write that can be refused after one that was not, so the words
// mean the same from within a script. In those of 6.2 they stand in the middle
// of a sentence.
var refusals = []struct {
	words string
	kind  driver.Kind
}{
	{"WRONGTYPE ", driver.Conflict},
	{"NOPERM ", driver.Denied},
	{"NOAUTH ", driver.Denied},
	{"WRONGPASS ", driver.Denied},
	{"called without any password configured", driver.Denied},
	{"user executing the script can't", driver.Denied},
	{"ACL failure in script", driver.Denied},
	{"unknown command", driver.Unsupported},
	{"Unknown Redis command called from script", driver.Unsupported},
	{"LOADING ", driver.Unavailable},
	{"READONLY ", driver.Unavailable},
	{"MASTERDOWN ", driver.Unavailable},
	{"NOREPLICAS ", driver.Unavailable},
	{"MISCONF ", driver.Unavailable},
	{"OOM ", driver.Unavailable},
	{"BUSY ", driver.Unavailable},
	{"NOSCRIPT ", driver.Unavailable},
	{"CLUSTERDOWN ", driver.Unavailable},
	{"TRYAGAIN ", driver.Unavailable},
	{"CROSSSLOT ", driver.Invalid},
	{"MOVED ", driver.Unavailable},
	{"ASK ", driver.Unavailable},
	{"No such master with that name", driver.Invalid},
	{"DB index is out of range", driver.Invalid},
	{"max number of clients reached", driver.Unavailable},
}

func (s *store) Classify(err error) driver.Kind { return classify(err) }

func classify(err error) driver.Kind {
	if f, ok := errors.AsType[*driver.Failure](err); ok {
		return f.Kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return driver.Indeterminate
	}
	if text, ok := refusal(err); ok {
		for _, r := range refusals {
			if i := strings.Index(text, r.words); i == 0 || i > 0 && strings.ContainsRune(" -", rune(text[i-1])) {
				return r.kind
			}
		}
		return driver.Indeterminate
	}
	// A connection that could not be made has carried nothing. One that was cut may
	// have.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return driver.Unavailable
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok || errors.Is(err, rueidis.ErrNoSlot) {
		return driver.Unavailable
	}
	return driver.Indeterminate
}

// openError says that nothing was done if the server could not be reached, and
// what to do where its words do not tell.
func openError(u *url.URL, err error) error {
	f := &driver.Failure{Kind: classify(err), Err: err}
	if f.Kind == driver.Indeterminate {
		f.Kind = driver.Unavailable
	}
	text, secure := err.Error(), strings.HasPrefix(u.Scheme, "rediss")
	switch {
	case strings.Contains(text, "NOAUTH"):
		f.Err = fmt.Errorf("redis: the server asks for a password: give it in the URL, by password-file, or in %s: %w", passwordVariable, err)
	case strings.Contains(text, "unknown command 'SENTINEL'"):
		f.Err = fmt.Errorf("redis: the server is no sentinel: %w", err)
	case secure && unknownAuthority(err):
		f.Err = fmt.Errorf("redis: nobody whom we trust has signed the server's certificate; name who did by ca-file: %w", err)
	case secure && !u.Query().Has("cert-file") && (hungUp(err) || strings.Contains(text, "certificate required")):
		f.Err = fmt.Errorf("redis: the server closed the connection; if it asks for the client's certificate, give cert-file and key-file: %w", err)
	case secure && errors.Is(err, context.DeadlineExceeded):
		f.Err = fmt.Errorf("redis: no answer in time; if the server speaks no TLS, use redis://: %w", err)
	case !secure && hungUp(err):
		f.Err = fmt.Errorf("redis: the server closed the connection; if it speaks TLS alone, use rediss://: %w", err)
	}
	return f
}

func unknownAuthority(err error) bool {
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

// hungUp tells whether the server ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// refusal is what the server itself answered.
func refusal(err error) (string, bool) {
	if e, ok := errors.AsType[ServerError](err); ok {
		return string(e), true
	}
	if e, ok := errors.AsType[*rueidis.RedisError](err); ok && !e.IsNil() { // of a dial
		return e.Error(), true
	}
	return "", false
}

// otherKind refuses a second kind of thing under a name in use.
func otherKind(limit string, asked int) error {
	kind := func(limit string) string {
		if limit == "0" {
			return "a lock"
		}
		return "a semaphore of " + limit
	}
	return &driver.Failure{Kind: driver.Conflict, Err: fmt.Errorf("the name is %s, not %s", kind(limit), kind(strconv.Itoa(asked)))}
}

// foreign names the key of a name that holds something else than ours, or may do so: the
// server speaks of our script. Any other error stays as it is.
func foreign(err error, key string) error {
	e, ok := err.(ServerError) //nolint:errorlint // a Link gives it bare
	if !ok || !strings.Contains(string(e), "WRONGTYPE ") {
		return err
	}
	return foreignKey(key)
}

func foreignKey(key string) error {
	return failure(driver.Conflict, recordKey(tagOf(key), key)+", or a key that goes with it, holds something that is not ours")
}

func unknownScript(err error) bool {
	e, ok := err.(ServerError) //nolint:errorlint // a Link gives it bare
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}
