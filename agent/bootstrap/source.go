package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/membership"
)

// sourceSight is what was read of the cluster that is to be joined.
type sourceSight struct {
	// view is its member list as a quorum reported it, or listErr why there is none.
	view    membership.View
	listErr error
	// stray are the endpoints that answered for another cluster than view's.
	stray []string
	// readErr is what a linearizable read answered.
	readErr error
	// statuses are the members' own answers, statusErrs why there is none of a member.
	statuses   map[uint64]membership.Status
	statusErrs map[uint64]error
}

// defaultQuota is etcd's own (server/storage, DefaultQuotaBytes).
const defaultQuota = 2 << 30

// floors are the lowest patches by minor that a cluster may run which is joined: those of spec.version. Older ones promote learners
// by mistake, or corrupt the data that they send to one.
var floors = map[int]int{5: 31, 6: 12, 7: 0}

// sourceOf says whether the cluster can be joined by the member at peerURL, and in words what speaks against it.
func sourceOf(cfg *config.Config, s *sourceSight, peerURL string) (source Source, detail string) {
	switch {
	case errors.Is(s.listErr, membership.ErrOtherCluster):
		return SourceOther, s.listErr.Error()
	case s.listErr != nil:
		return SourceSilent, s.listErr.Error()
	case len(s.stray) > 0:
		return SourceOther, fmt.Sprintf("not of cluster %x: %s", s.view.ClusterID, strings.Join(s.stray, ", "))
	case errors.Is(s.readErr, rpctypes.ErrUserEmpty) || errors.Is(s.readErr, rpctypes.ErrPermissionDenied):
		return SourceUnfit, "authentication is on, and the agents have no user there; turn it off with etcdctl auth disable until the move is done"
	case s.readErr != nil:
		return SourceSilent, s.readErr.Error()
	}
	source = SourceFit
	for _, m := range s.view.Members {
		if slices.Contains(m.PeerURLs, peerURL) {
			continue // our own entry
		}
		found, words := s.memberOf(cfg, m)
		// What a person has to repair is reported first.
		if found != SourceFit && (source == SourceFit || found == SourceUnfit && source != SourceUnfit) {
			source, detail = found, fmt.Sprintf("member %s (%x): %s", m.Name, m.ID, words)
		}
	}
	return source, detail
}

// memberOf says what one of its members makes of it.
func (s *sourceSight) memberOf(cfg *config.Config, m membership.Member) (source Source, detail string) {
	for _, url := range slices.Concat(m.PeerURLs, m.ClientURLs) {
		if !strings.HasPrefix(url, "http://") {
			return SourceUnfit, "it advertises " + url + "; druid's members speak no TLS yet, so they cannot join a cluster whose members do"
		}
	}
	switch status, err := s.statuses[m.ID], s.statusErrs[m.ID]; {
	case m.Learner:
		return SourceAiling, "it is a learner, and a cluster takes one at a time unless it is reported otherwise; promote or remove it"
	case !m.Started():
		return SourceAiling, "it was added and never started"
	case err != nil:
		return SourceAiling, "it cannot be asked at the client URLs that it advertises: " + err.Error()
	default:
		return statusOf(cfg, status)
	}
}

// quotaOf is how large etcd lets its database become, in bytes.
func quotaOf(cfg *config.Config) int64 { return cmp.Or(cfg.QuotaBackendBytes, defaultQuota) }

func statusOf(cfg *config.Config, status membership.Status) (source Source, detail string) {
	if words := versionProblem(status.Version, cfg.EtcdVersion); words != "" {
		return SourceUnfit, words
	}
	quota := quotaOf(cfg)
	switch {
	// A member over its quota stops the writes of the whole cluster.
	case status.DBSize+status.DBSize/10 > quota:
		return SourceUnfit, fmt.Sprintf("its database has %d MiB, too much for the quota of %d MiB of the members that join; "+
			"defragment it, or create the EtcdCluster again with a larger etcd.quotaBackendBytes", status.DBSize>>20, quota>>20)
	case status.Leader == 0:
		return SourceAiling, "it knows no leader"
	case len(status.Errors) > 0:
		return SourceAiling, strings.Join(status.Errors, ", ")
	default:
		return SourceFit, ""
	}
}

// versionProblem says why a member of version has cannot be joined by one of version wanted; empty if it can.
func versionProblem(has, wanted string) string {
	minor, err := minorOf(has)
	if err != nil {
		return err.Error()
	}
	ours, err := minorOf(wanted)
	if err != nil {
		return err.Error()
	}
	if minor != ours {
		return fmt.Sprintf("it runs etcd %s, and spec.version is %s: the minors must be the same; the cluster can be upgraded once it is joined", has, wanted)
	}
	patch, err := patchOf(has)
	if err != nil {
		return err.Error()
	}
	if floor := floors[minor]; patch < floor {
		return fmt.Sprintf("it runs etcd %s, whose bugs corrupt data or promote learners by mistake; upgrade it to 3.%d.%d at least", has, minor, floor)
	}
	return ""
}

// patchOf reads the patch of an etcd version 3.minor.patch; what follows a dash is a vendor's.
func patchOf(version string) (int, error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return 0, fmt.Errorf("etcd version %q: want 3.minor.patch", version)
	}
	text, _, _ := strings.Cut(parts[2], "-")
	patch, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("etcd version %q: want 3.minor.patch", version)
	}
	return patch, nil
}
