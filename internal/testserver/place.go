package testserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Tool is the path of a server that `make servers` has put into the checkout.
func Tool(name string) (string, error) {
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		here, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		if _, err = os.Stat(filepath.Join(here, "go.work")); err == nil {
			path := filepath.Join(here, ".tools", name)
			if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("tests need %s: run make servers: %w", path, err)
			}
			return path, err
		}
		if here == "/" {
			return "", errors.New("tests need the whole checkout: no go.work above")
		}
	}
}

// Folder makes a folder for a server, in memory where there is such a thing.
func Folder(prefix string) (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", prefix); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", prefix)
}

// nextPort begins somewhere, so that two runs at once seldom meet.
var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid() % 1000 * 20)) }

// FreePort is a port on which nobody listens now, and which the kernel gives to no
// outgoing connection: a server that is started again finds it free. So is the one
// 10,000 above it, which the nodes of a Redis Cluster use among themselves. 0 if all
// are taken.
func FreePort() int {
	const first, ports = 10_000, 10_000
	for range ports {
		port := first + int(nextPort.Add(1)%ports)
		if l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", Addr(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	return 0
}

// Addr is a port of this machine alone.
func Addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
