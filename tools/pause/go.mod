// The process that holds a Pod's namespaces in the test rig.
module github.com/etcd-druid/druid/tools/pause

go 1.26.0
