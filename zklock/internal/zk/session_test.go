package zk

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// A server that takes the session and hangs up at once is not asked again and
// again without a pause.
func TestServerThatHangsUp(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := appendBuffer(appendLong(appendInt(appendInt(nil, 0), 8000), 1), make([]byte, 16))
	accepted = append(appendInt(nil, int32(len(accepted))), accepted...) //nolint:gosec // small
	const times = 10
	done := make(chan struct{})
	begin := time.Now()
	go func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if i == times {
				close(done)
			}
			_, _ = readFrame(bufio.NewReader(c))
			_, _ = c.Write(accepted)
			_ = c.Close()
		}
	}()
	s, err := Open(t.Context(), &Config{Servers: []string{l.Addr().String()}, Timeout: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(false)
	<-done
	if took := time.Since(begin); took < time.Second { // 0, 10, 30, 70, 150 and then 250 ms between them at least
		t.Errorf("it was asked %d times in %v", times, took)
	}
}
