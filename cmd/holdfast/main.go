// Command holdfast runs programs under a distributed lock, and shows and frees
// locks. See docs/command.md.
package main

import (
	"os"

	"github.com/holdfast-go/holdfast/cmd/holdfast/cli"
	_ "github.com/holdfast-go/holdfast/etcdlock"
	_ "github.com/holdfast-go/holdfast/filelock"
	_ "github.com/holdfast-go/holdfast/memlock"
	_ "github.com/holdfast-go/holdfast/redislock"
	_ "github.com/holdfast-go/holdfast/zklock"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
