// Package versions owns the rules for etcd versions: which releases are refused, which have a known bug that is worth
// a warning, and which steps between two releases are possible. The API server has the same rules as CEL, and a test
// checks that both agree. It is a leaf and never looks at a cluster.
package versions
