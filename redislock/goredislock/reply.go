package goredislock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock"
)

func replyOf(cmd once) redislock.Reply {
	if err := cmd.Err(); err != nil {
		return errorReply(err)
	}
	return valueReply(cmd.Val())
}

func valueReply(value any) (r redislock.Reply) {
	switch v := value.(type) {
	case nil:
		r.Null = true
	case error:
		return errorReply(v)
	case string:
		r.Text = v
	case int64:
		r.Int = v
	case []any:
		r.List = make([]redislock.Reply, len(v))
		for i := range v {
			r.List[i] = valueReply(v[i])
		}
	case map[any]any:
		for key, of := range v {
			r.List = append(r.List, valueReply(key), valueReply(of))
		}
	default:
		r.Text = fmt.Sprint(v)
	}
	return r
}

func errorReply(err error) redislock.Reply {
	if errors.Is(err, redis.Nil) {
		return redislock.Reply{Null: true}
	}
	return redislock.Reply{Err: serverError(err)}
}

// serverError tells what the server said from what happened to the client.
func serverError(err error) error {
	if refused, ok := errors.AsType[redis.Error](err); ok {
		return redislock.ServerError(strings.TrimPrefix(refused.Error(), "ERR "))
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return &driver.Failure{Kind: driver.Unavailable, Err: err} // it was not sent
	}
	return err
}
