package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
)

// refusals are the server's ways to say "I did not do it", by what they mean. A
// server that stops, that waits too long for the others, or whose leader changes
// has not said so.
var refusals = []struct {
	err  error
	kind driver.Kind
}{
	{rpctypes.ErrPermissionDenied, driver.Denied},
	{rpctypes.ErrAuthFailed, driver.Denied},
	{rpctypes.ErrUserEmpty, driver.Denied},
	{rpctypes.ErrInvalidAuthToken, driver.Denied},
	{rpctypes.ErrPermissionNotGranted, driver.Denied},
	{rpctypes.ErrRoleNotFound, driver.Denied},
	{rpctypes.ErrUserNotFound, driver.Denied},
	{rpctypes.ErrAuthOldRevision, driver.Unavailable},
	{rpctypes.ErrNoSpace, driver.Unavailable},
	{rpctypes.ErrTooManyRequests, driver.Unavailable},
	{rpctypes.ErrNoLeader, driver.Unavailable},
	{rpctypes.ErrNotCapable, driver.Unavailable},
	{rpctypes.ErrLeaseNotFound, driver.Unavailable},
	{rpctypes.ErrGRPCNotSupportedForLearner, driver.Unavailable},
	{rpctypes.ErrCorrupt, driver.Unavailable},
	{rpctypes.ErrLeaseTTLTooLarge, driver.Invalid},
	{rpctypes.ErrRequestTooLarge, driver.Invalid},
	{rpctypes.ErrTooManyOps, driver.Invalid},
}

func (s *store) Classify(err error) driver.Kind { return classify(err) }

func classify(err error) driver.Kind {
	if f, ok := errors.AsType[*driver.Failure](err); ok {
		return f.Kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return driver.Indeterminate
	}
	known := rpctypes.Error(err)
	for _, r := range refusals {
		if errors.Is(known, r.err) || errors.Is(known, rpctypes.Error(r.err)) {
			return r.kind
		}
	}
	switch status.Code(err) { //nolint:exhaustive // the rest may have been applied
	case codes.Unauthenticated, codes.PermissionDenied:
		return driver.Denied
	case codes.Unimplemented:
		return driver.Unsupported
	}
	return driver.Indeterminate
}

// asWhole tells whether a transaction was refused of which a part may be taken: for
// what one of its requests asks, or because it is too large for the server.
func asWhole(err error) bool {
	if err == nil {
		return false
	}
	kind := classify(err)
	return kind == driver.Denied || kind == driver.Invalid
}

// foreign refuses a name under which there is something that is not ours.
var foreign = &driver.Failure{Kind: driver.Conflict, Err: errors.New("etcd: there are keys under the name that are not ours")}

// otherKind refuses a second kind of thing under a name in use.
func otherKind(limit, asked int) error {
	kind := func(limit int) string {
		if limit == 0 {
			return "a lock"
		}
		return fmt.Sprintf("a semaphore of %d", limit)
	}
	return &driver.Failure{Kind: driver.Conflict, Err: fmt.Errorf("the name is %s, not %s", kind(limit), kind(asked))}
}
