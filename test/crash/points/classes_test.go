package points

import (
	"go/types"
	"slices"
	"strings"
)

// class of a function: does it change anything that outlives the process?
type class uint8

const (
	_ class = iota
	// changes something outside: it stands between two points.
	changes
	// reads, or touches only what ends with the process.
	reads
	// reports a person something from which nothing follows.
	announces
)

// watched says whether a function belongs to one of the doors to the outside. Each of them that is called must be in
// classes.
func watched(f *types.Func) bool {
	if f.Pkg() == nil {
		return false
	}
	signature := f.Signature()
	switch path := strings.TrimPrefix(f.Pkg().Path(), module); path {
	case "os", "os/exec", "golang.org/x/sys/unix",
		"go.etcd.io/etcd/client/v3",
		"k8s.io/client-go/kubernetes/typed/coordination/v1", "k8s.io/client-go/tools/internal/events":
		return true
	case "sigs.k8s.io/controller-runtime/pkg/client", "backup/store":
		return signature.Recv() != nil && types.IsInterface(signature.Recv().Type())
	case "leases":
		return signature.Recv() != nil && f.Exported() &&
			(strings.HasSuffix(signature.Recv().Type().String(), "leases.Store") || types.IsInterface(signature.Recv().Type()))
	case "agent/launch":
		return f.Exported() && signature.Recv() != nil && strings.HasSuffix(signature.Recv().Type().String(), "launch.Conn")
	case "agent/survivor", "backup/catalog", "backup/delta", "backup/restore", "backup/snapshot":
		return takes(signature, "context.Context")
	case "membership":
		return takes(signature, "*go.etcd.io/etcd/client/v3.Client") || takes(signature, module+"membership.Dial")
	case "agent/datadir", "agent/datadir/volume":
		return signature.Recv() == nil && f.Exported() && takes(signature, "string")
	default:
		return false
	}
}

func takes(signature *types.Signature, kind string) bool {
	return slices.ContainsFunc(slices.Collect(signature.Params().Variables()), func(v *types.Var) bool { return v.Type().String() == kind })
}

// classes of every function of the doors that is called, and of the functions of ours that carry such a call for others.
var classes = merge(map[class][]string{
	changes: {
		// Kubernetes.
		"(client.Writer).Create", "(client.Writer).Update", "(client.Writer).Patch", "(client.Writer).Apply",
		"(client.Writer).Delete", "(client.Writer).DeleteAllOf",
		"(client.SubResourceWriter).Create", "(client.SubResourceWriter).Update", "(client.SubResourceWriter).Patch",
		"(client.SubResourceWriter).Apply",
		"(*druid.Reconciler).create", "(*druid.Reconciler).patchMetadata", "(*druid.Reconciler).mergePatch", "(*druid.Reconciler).patch",
		"(*druid.Reconciler).applyOurs",
		"(*druid.Reconciler).setOwners", "(*druid.Reconciler).writeSecret",
		"(kubernetes/typed/coordination/v1.LeaseInterface).Create", "(kubernetes/typed/coordination/v1.LeaseInterface).Update",
		"(kubernetes/typed/coordination/v1.LeaseInterface).Patch", "(kubernetes/typed/coordination/v1.LeaseInterface).Apply",
		"(kubernetes/typed/coordination/v1.LeaseInterface).Delete", "(leases.Client).Patch",
		"(*leases.Store).UpdateRecord", "(*leases.Store).PatchMember", "(*leases.Store).RequestRemoval", "(*leases.Store).RenewBackup",
		"(*leases.Store).ReportVerification",
		"(*leases.Store).AnswerSnapshot", "(*leases.Store).OrderSnapshot", "(*leases.Store).ClearSnapshotOrder", "(*leases.Store).OrderUpgrade",
		"(*leases.Store).AnswerUpgrade", "(*leases.Store).AnswerRestore", "(*leases.Store).RequestRestorePlan", "(*leases.Store).ReportAuth",
		"(*leases.Store).MarkDifference", "(*leases.Store).ReportUndecided", "(*leases.Store).BindMember", "(*leases.Store).AnnounceRepair",
		"(*leases.Store).PublishDiskReport", "(*leases.Store).NoteDefragmentation",
		"(*leases.Store).Lead",
		// The backup store.
		"(backup/store.Store).Put", "(backup/store.Store).Delete", "(backup/store.Store).Sweep", "backup/catalog.WriteBootstrap",
		"backup/snapshot.Take", "(*backup/delta.Recorder).Run", "(*backup/delta.Recorder).Flush",
		// etcd.
		"membership.AddLearner", "membership.Promote", "membership.UpdatePeerURL", "membership.Remove", "membership.MoveLeader",
		"membership.Defragment", "membership.Compact", "membership.Disarm",
		"membership.EnableDowngrade", "membership.CancelDowngrade", "membership.ApplyAuth", "membership.SwitchAuth",
		"(*agent/duties.removalRequest).mark", "(*agent/duties.round).remove", "(*agent/duties.Departure).mark", "(*agent/duties.Departure).remove",
		// The volume. Quarantine, PlaceRestored and Prune have points within.
		"agent/datadir.WriteIdentityFile", "agent/datadir.describe", "agent/datadir.makeDataDir", "agent/datadir/volume.WriteFile",
		"agent/datadir/volume.WriteExit", "agent/datadir/volume.ClearExit",
		"backup/restore.Run", "agent/survivor.Run", "agent/datadir.WriteBuilt",
		"os.Chmod", "os.Chown", "os.Create", "os.CreateTemp", "os.Link", "os.Mkdir", "os.MkdirAll", "os.MkdirTemp", "os.OpenFile",
		"os.Remove", "os.RemoveAll", "os.Rename", "os.Symlink", "os.Truncate", "os.WriteFile",
		"(*os.File).Chmod", "(*os.File).Truncate", "(*os.File).Write", "(*os.File).WriteAt", "(*os.File).WriteString",
		// launch, which starts and stops etcd.
		"(*agent/launch.Conn).SendOrder", "(*agent/launch.session).send",
	},
	reads: {
		"(client.Client).Scheme", "(client.Reader).Get", "(client.Reader).List", "(client.StatusClient).Status",
		"(*kubernetes/typed/coordination/v1.CoordinationV1Client).Leases", "(kubernetes/typed/coordination/v1.LeasesGetter).Leases",
		"kubernetes/typed/coordination/v1.NewForConfig", "kubernetes/typed/coordination/v1.NewForConfigAndClient",
		"(kubernetes/typed/coordination/v1.LeaseInterface).Get", "(kubernetes/typed/coordination/v1.LeaseInterface).Watch", "(leases.Client).Get",
		"(leases.Client).Watch", "(*leases.Store).Leadership",
		"(*leases.Store).Marks", "(*leases.Store).Member", "(*leases.Store).Backup", "(*leases.Store).Full", "(*leases.Store).Record", "(*leases.Store).WatchRecord",
		"(*leases.Store).SnapshotOrder", "(*leases.Store).WatchSnapshotOrder",
		"membership.Linearizable", "membership.Observe", "membership.ReadAuthSwitch", "membership.ReadAuth", "membership.ComparePassword",
		"membership.ReadStatus", "membership.StatusOf", "membership.Alarms", "membership.CompactedAt", "membership.ReadContent",
		"membership.LengthenLog", "client/v3.New", "(*client/v3.Client).Close",
		"(*client/v3.Client).ActiveConnection", "(client/v3.KV).Get", "(client/v3.Maintenance).HashKV", "(client/v3.Cluster).MemberList",
		"client/v3.NewMaintenanceFromMaintenanceClient", "client/v3.RetryMaintenanceClient", "client/v3.WithCountOnly", "client/v3.WithRev",
		"(backup/store.Store).Get", "(backup/store.Store).List", "backup/catalog.Read", "backup/catalog.Survey", "backup/catalog.ReadBootstrap",
		"backup/snapshot.ReadTrailer",
		"backup/restore.CheckFile", "backup/restore.CheckPlan", "backup/delta.AskAlongside",
		"agent/datadir.AllQuarantined", "agent/datadir.ContentOf", "agent/datadir.Inspect", "agent/datadir.ReadHolding", "agent/datadir.ReadBuilt",
		"agent/datadir.ReadIdentityFile", "agent/datadir.ReadTail",
		"agent/datadir.Quarantine", "agent/datadir.Prune", "agent/datadir.DropLeftovers", "agent/datadir.Leftovers",
		"agent/datadir.PlaceRestored", "agent/datadir/volume.RestoredPath",
		"agent/datadir.LargestDatabase", "agent/datadir.SpaceOf",
		// A directory's sync only keeps what was done.
		"os.Stat", "agent/datadir.RoomOf", "agent/datadir/volume.DataPath", "agent/datadir/volume.Free", "agent/datadir/volume.Size", "agent/datadir/volume.SyncDir",
		"(*os.File).Close", "(*os.File).Fd", "(*os.File).Name", "(*os.File).Read", "(*os.File).ReadAt", "(*os.File).Stat",
		"os.Executable", "os.Getenv", "os.Getuid", "os.Lstat", "os.NewFile", "os.Open", "os.ReadDir", "os.ReadFile", "os.Readlink",
		"unix.CmsgSpace", "unix.Fadvise", "unix.GetsockoptUcred", "unix.ParseSocketControlMessage", "unix.ParseUnixRights", "unix.SetsockoptInt",
		"unix.Syscall", "unix.UnixRights", "(*agent/launch.Conn).Close", "(*agent/launch.Conn).ReadReport",
	},
	announces: {"(tools/internal/events.EventRecorder).Eventf"},
})

// carried are the functions whose changes have no points of their own, and why.
var carried = map[string]string{
	"(*agent/backups.Duty).verifyBackups":      "one patch reports all that was found; without it the backups are verified again",
	"(*agent/backups.Duty).reportBroken":       "one patch reports what is broken, before the order is answered; without it the next verification finds it",
	"(*leases.Store).patch":                    "the exported functions of Store stand between points where they are called",
	"(*agent/backups.Save).take":               "each object is in the store completely or not at all, and druid creates the Pod again",
	"(*agent/backups.Save).Drop":               "an object that is gone is as good as deleted, and druid creates the Pod again",
	"(*agent/backups.session).record":          "each delta is in the store completely or not at all, and the next recorder goes on after the last",
	"(*agent/backups.session).flush":           "as record",
	"(*agent/backups.orders).flush":            "as record",
	"(*agent/duties.removalRequest).mark":      "its callers have the points",
	"(*agent/duties.round).remove":             "its callers have the points",
	"(*agent/duties.Departure).mark":           "its callers have the points",
	"(*agent/duties.Departure).remove":         "its callers have the points",
	"(*druid.Reconciler).applyOurs":            "its callers have the points",
	"(*druid.Reconciler).applyNew":             "applyOurs calls it, whose callers have the points",
	"(*druid.Reconciler).resolveConflict":      "applyOurs calls it, whose callers have the points; without the apply after it the next pass applies",
	"(*druid.Reconciler).create":               "its callers have the points",
	"(*druid.Reconciler).patchMetadata":        "its callers have the points",
	"(*druid.Reconciler).mergePatch":           "its callers have the points",
	"(*druid.Reconciler).patch":                "its callers have the points",
	"(*druid.Reconciler).setOwners":            "its callers have the points",
	"(*agent/duties.Takeover).ask":             "leadership is not data, and the next observation finds the leader",
	"(*agent/launch.session).send":             "its callers have the points",
	"(*agent/launch.session).ask":              "a reason to wait changes nothing",
	"(*agent/launch.Server).listen":            "the agent's own socket is made again at each start",
	"(*druid.Reconciler).writeSecret":          "its callers have the points",
	"(*druid.Reconciler).patchNothing":         "a patch that changes nothing returns the Secret",
	"(*druid.Reconciler).announceCertificates": "without it the kubelets look a minute later",
	"(agent/certificates.content).place":       "what is staged is memory of the Pod, and the agent compares it again at its start",
	"agent/certificates.replaceLink":           "as place",
	"agent/certificates.deleteOthers":          "as place",
	"(*agent/certificates.plane).begin":        "as place",
	"(*agent/certificates.plane).markNamed":    "as place",
	"agent/datadir.WriteIdentityFile":          "its callers have the points",
	"agent/datadir.WriteBuilt":                 "its callers have the points",
	"agent/datadir.describe":                   "its caller has the points",
	"agent/datadir.makeDataDir":                "its caller has the points",
}

func merge(by map[class][]string) map[string]class {
	all := map[string]class{}
	for class, names := range by {
		for _, name := range names {
			all[name] = class
		}
	}
	return all
}
