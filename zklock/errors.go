package zklock

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

// ServerError is an error that a server answered, by its number in the protocol; found
// by errors.As.
type ServerError = zk.ServerError

// kinds are what the server's refusals mean. None of them has changed anything.
var kinds = map[zk.ServerError]driver.Kind{
	zk.ErrUnimplemented:           driver.Unsupported,
	zk.ErrBadArguments:            driver.Invalid,
	zk.ErrMarshallingError:        driver.Invalid,
	zk.ErrInvalidACL:              driver.Invalid,
	zk.ErrNoAuth:                  driver.Denied,
	zk.ErrAuthFailed:              driver.Denied,
	zk.ErrNoChildrenForEphemerals: driver.Conflict,
	zk.ErrSessionExpired:          driver.Unavailable,
	zk.ErrSessionMoved:            driver.Unavailable,
	zk.ErrNotReadOnly:             driver.Unavailable,
	zk.ErrQuotaExceeded:           driver.Unavailable,
	zk.ErrThrottled:               driver.Unavailable,
}

func (s *store) Classify(err error) driver.Kind { return driver.KindOf(err) }

// refused makes an error of what a server answered.
func refused(what string, err error) error {
	code, ok := errors.AsType[zk.ServerError](err)
	if !ok {
		return err
	}
	return &driver.Failure{Kind: kinds[code], Err: fmt.Errorf("zookeeper: %s: %w", what, err)}
}

// left is an error after which a node of the attempt may remain.
func left(err error) error {
	if err == nil || driver.KindOf(err) == driver.Indeterminate {
		return err
	}
	return &driver.Failure{Kind: driver.Indeterminate, Err: err}
}

func conflict(text string) error {
	return &driver.Failure{Kind: driver.Conflict, Err: errors.New("zookeeper: " + text)}
}

var (
	errOtherVersion = conflict("the name is locked by a later version of this program")
	errOtherRecord  = conflict("the node of the name is not one of ours")
)

// otherKind refuses a second kind of thing under a name in use.
func otherKind(is, asked int) error {
	kind := func(limit int) string {
		if limit == 0 {
			return "a lock"
		}
		return "a semaphore of " + strconv.Itoa(limit)
	}
	return conflict("the name is " + kind(is) + ", not " + kind(asked))
}
