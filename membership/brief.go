package membership

import "regexp"

// connection is the part of an error of Go's net package that has the addresses and ports of one connection.
var connection = regexp.MustCompile(`\b(tcp|udp) (\S+->)?\S+:\d+: `)

// Brief returns the text of an error without what differs between two attempts that fail equally: the addresses and ports of a
// connection. An agent reports it, so that its Lease stays the same while no member answers. gRPC passes on only the text of such errors.
// Error has all of it, for logs.
func Brief(err error) string { return connection.ReplaceAllString(err.Error(), "$1: ") }
