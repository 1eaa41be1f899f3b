// Package versions holds the rules by which etcd may go from one version to another: which releases are refused, which are known
// to have a bug that is worth a warning, and which steps between two releases there are. The API server holds the same rules as CEL;
// a test holds that both agree. It is a leaf, asks no one, and never looks at a cluster.
package versions
