// Package plugin is kubectl druid: its commands, and what they print. It reads Kubernetes objects, which package view
// describes, and works while druid is down. It acts by writing Kubernetes objects, and never by a request to an agent. Only
// etcdctl, backups, restore and move-leader run a program in a container of a member.
//
// It must never link controller-runtime, an etcd client or a backup store, and it must build for Linux, macOS and Windows.
package plugin
