package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requestsOf returns the requests of the clients in the logs of the members, in the order of the log.
func requestsOf(lg *zap.Logger, dir string) ([]model.EtcdRequest, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "server-*"))
	if err != nil || len(logs) == 0 {
		return nil, fmt.Errorf("%s contains no log of a member (%w)", dir, err)
	}
	scratch, err := os.MkdirTemp("", "robustness-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	var copies []string
	for _, log := range logs {
		to := filepath.Join(scratch, filepath.Base(log))
		if err := copyLog(lg, log, to); err != nil {
			return nil, fmt.Errorf("log %s: %w", log, err)
		}
		copies = append(copies, to)
	}
	return report.PersistedRequests(lg, copies)
}

// copyLog copies the entries of a log. Requests about users, roles and alarms become empty entries: the agents of druid make such
// requests, they change no key and no revision, and etcd's model does not have them.
func copyLog(lg *zap.Logger, from, to string) error {
	state, entries, err := report.ReadWAL(lg, from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if isForeign(entry) {
			entry.Data = nil
		}
	}
	if err := os.MkdirAll(datadir.ToMemberDir(to), 0o700); err != nil {
		return err
	}
	w, err := wal.Create(lg, datadir.ToWALDir(to), nil)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Save(state, entries)
}

// isForeign says that the entry is a request that touches no key, no lease and no revision.
func isForeign(entry *raftpb.Entry) bool {
	var request pb.InternalRaftRequest
	if entry.GetType() != raftpb.EntryNormal || proto.Unmarshal(entry.Data, &request) != nil {
		return false
	}
	foreign := request.Alarm != nil
	request.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		foreign = foreign || strings.HasPrefix(string(field.Name()), "auth_")
		return !foreign
	})
	return foreign
}
