// Package connect tests the pages about clients of an EtcdCluster. It takes programs, commands and configurations from the pages, and runs
// them with the connection Secret that druid would write, on a real etcd that requires certificates. What it does not run, it compares with
// what the program documents; the page says so.
package connect
