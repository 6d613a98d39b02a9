package redistest

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TLS names the files with which servers speak TLS to clients and to each other. They
// have their plain ports beside it, for the tests themselves.
type TLS struct{ Cert, Key, CA string }

// args are what such a server is started with.
func (t *TLS) args(port int) []string {
	return []string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", t.Cert, "--tls-key-file", t.Key, "--tls-ca-cert-file", t.CA,
		"--tls-replication", "yes", "--tls-cluster", "yes",
	}
}

// config is the same for a configuration file.
func (t *TLS) config(port int) string {
	words := t.args(port)
	lines := make([]string, 0, len(words)/2)
	for i := 0; i < len(words); i += 2 {
		lines = append(lines, strings.TrimPrefix(words[i], "--")+" "+words[i+1]+"\n")
	}
	return strings.Join(lines, "")
}

// StartTLS is the function Start with TLS. nil: without.
func StartTLS(v Version, t *TLS, args ...string) (*Server, error) {
	return start(v, func(s *Server) []string {
		if t == nil {
			return plainArgs(args)(s)
		}
		s.TLSPort = testserver.FreePort()
		return plainArgs(append(t.args(s.TLSPort), args...))(s)
	})
}

// peerPort is where other servers reach it.
func (s *Server) peerPort() int {
	if s.TLSPort != 0 {
		return s.TLSPort
	}
	return s.Port
}

// TLSAddr is host:port.
func (s *Server) TLSAddr() string { return "127.0.0.1:" + strconv.Itoa(s.TLSPort) }

func scheme(t *TLS) string {
	if t != nil {
		return "rediss"
	}
	return "redis"
}

// addrs are where clients reach the servers.
func addrs(servers []*Server) string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = "127.0.0.1:" + strconv.Itoa(s.peerPort())
	}
	return strings.Join(all, ",")
}
