// Command etcd is the etcd server that the tests start. It is a module of its
// own, so that none of ours requires the server: go install cannot build it by
// its path, because of its replace directives.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
