//go:build !linux

// Command rig runs only on Linux; see the README next to it.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "rig: nodes are made of Linux namespaces and cgroups, and this is %s; run the rig in a Linux virtual machine\n", runtime.GOOS)
	os.Exit(1)
}
