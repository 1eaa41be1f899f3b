// Command agent runs an agent of package alone.
//
//	agent CERTIFICATE.json
package main

import (
	"fmt"
	"os"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/test/alone"
)

func main() {
	log, level := cli.NewLogger(os.Stderr)
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: agent CERTIFICATE.json")
		os.Exit(2)
	}
	if err := alone.Run(os.Args[1], log, level); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}
