package states

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded are what kubectl druid prints in recorded situations, whose members are demo-bqdq7, demo-lgmkl and demo-sx47z.
const recorded = "../../../internal/plugin/testdata"

// TestSteadyOutputOfTwoRuns: outputs of the same state in two runs become the same text.
func TestSteadyOutputOfTwoRuns(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string
		names         [2]Names
		want          string
	}{
		"a headline": {
			first:  "story-4kx2p/demo  ● Serving for 47h  3/3 members ready  etcd 3.6.16  age 2d",
			second: "story-9zzzz/demo  ● Serving for 3m12s  3/3 members ready  etcd 3.7.0-rc.1  age 10s",
			names:  [2]Names{{"story-4kx2p": "default"}, {"story-9zzzz": "default"}},
			want:   "default/demo  ● Serving for <age>  3/3 members ready  etcd <version>  age <age>",
		},
		"a member that ended before it reported its last role": {
			first:  "MEMBER       ROLE\ndemo-bqdq7   was Leader\ndemo-lgmkl   Leader\n",
			second: "MEMBER       ROLE\ndemo-bqdq7   was Member\ndemo-lgmkl   Leader\n",
			want:   "MEMBER       ROLE\ndemo-bqdq7   was <role>\ndemo-lgmkl   Leader\n",
		},
		"a name that begins another": {
			first:  "store-4kx2p/store-4kx2p-a",
			second: "b/b-1",
			names:  [2]Names{{"store-4kx2p": "default", "store-4kx2p-a": "<leader>"}, {"b": "default", "b-1": "<leader>"}},
			want:   "default/<leader>",
		},
		"members in another order and with other widths": {
			first: "MEMBER       ROLE     STATE   RENEWED   RAFT LAG   REVISION   DB / QUOTA           FREE      DISK          NODE   ZONE   ETCD     AGENT\n" +
				"demo-bqdq7   Leader   Ready   4s ago    0          48,211     212 MiB / 2.0 GiB    4.5 GiB   OK (4ms)      n1     z1     3.6.16   v0.6.0\n" +
				"demo-lgmkl   Member   Ready   7s ago    1          48,208     212 MiB / 2.0 GiB    4.5 GiB   Slow (31ms)   n2     z2     3.6.16   v0.6.0\n" +
				"demo-lgmkl: a note\n\nNothing to do.\n",
			second: "MEMBER       ROLE     STATE   RENEWED    RAFT LAG   REVISION   DB / QUOTA         FREE      DISK       NODE   ZONE   ETCD     AGENT\n" +
				"demo-2wwww   Member   Ready   just now   0          7          20 KiB / 2.0 GiB   1.1 GiB   OK (2ms)   n3     z3     3.6.16   v0.6.0\n" +
				"demo-zzzzz   Leader   Ready   10s ago    0          7          20 KiB / 2.0 GiB   1.1 GiB   OK (2ms)   n1     z1     3.6.16   v0.6.0\n" +
				"demo-2wwww: a note\n\nNothing to do.\n",
			names: [2]Names{
				{"demo-bqdq7": "<leader>", "demo-lgmkl": "<follower>"}, {"demo-zzzzz": "<leader>", "demo-2wwww": "<follower>"},
			},
			want: "MEMBER       ROLE     STATE   RENEWED     RAFT LAG   REVISION   DB / QUOTA        FREE     DISK     NODE     ZONE     ETCD        AGENT\n" +
				"<follower>   Member   Ready   <age> ago   <n>        <n>        <size> / <size>   <size>   <disk>   <node>   <zone>   <version>   <version>\n" +
				"<leader>     Leader   Ready   <age> ago   <n>        <n>        <size> / <size>   <size>   <disk>   <node>   <zone>   <version>   <version>\n" +
				"<follower>: a note\n\nNothing to do.\n",
		},
		"backups": {
			first: "default/demo  1 lineage, 1 full backup and 1893 delta backups, 3.0 GiB\nRead by      the agent of member demo-bqdq7\n" +
				"LINEAGE             BEGAN                  FORK AT   REVISIONS    FULLS   DELTAS\n" +
				"00000001-9f31c2d4   2026-11-01T08:00:00Z   none      1 - 48,211   21      1893\n",
			second: "default/demo  1 lineage, 2 full backups and 1 delta backup, 20 KiB\nRead by      the agent of member demo-2wwww\n" +
				"LINEAGE             BEGAN                  FORK AT   REVISIONS   FULLS   DELTAS\n" +
				"00000002-00000000   2026-11-02T08:00:00Z   none      1 - 7       2       1\n",
			want: "default/demo  1 lineage, <n> full backups and <n> delta backups, <size>\nRead by      the agent of member <member>\n" +
				"LINEAGE     BEGAN    FORK AT   REVISIONS   FULLS   DELTAS\n" +
				"<lineage>   <time>   none      <n> - <n>   <n>     <n>\n",
		},
		"a backup on request": {
			first:  "EtcdSnapshot default/demo-x7k2p created\nPending\nRunning: member demo-bqdq7 makes it\nSucceeded\n  revision 7, 1.0 MiB\n",
			second: "EtcdSnapshot default/demo-zzzzz created\nSucceeded\n  revision 1,234, 20 KiB\n",
			want:   "EtcdSnapshot default/<snapshot> created\nSucceeded\n  revision <n>, <size>\n",
		},
		"a refusal and a measurement": {
			first:  "\"x\" is no member of it. Its members are demo-bqdq7, demo-lgmkl. Nothing was changed\nit is healthy: took = 1.93ms\n",
			second: "\"x\" is no member of it. Its members are demo-2wwww, demo-zzzzz. Nothing was changed\nit is healthy: took = 12ms\n",
			want:   "\"x\" is no member of it. Its members are <members>. Nothing was changed\nit is healthy: took = <age>\n",
		},
		"a spec, a lineage and a leader of druid": {
			first:  "generation 1, accepted 00000001-4c312e589c73c8c8 druid-1_7ad0386f-3e0f-40e9-a3f2-0123456789ab leads",
			second: "generation 1,234, accepted 00000003-9f31c2d4 druid-1_00000000-3e0f-40e9-a3f2-0123456789ab leads",
			want:   "generation <n>, accepted <lineage> druid-1_<id> leads",
		},
		"a member that a pause kept, and one that joined": {
			first:  "  The last decision of its agent about the start of etcd is the rule resume-majority: https://docs/decisions.md#start-resume-majority\n",
			second: "  The last decision of its agent about the start of etcd is the rule join: https://docs/decisions.md#start-join\n",
			want: "  The last decision of its agent about the start of etcd is the rule <join or resume>: " +
				"https://docs/decisions.md#start-<join or resume>\n",
		},
		"an upgrade": {
			first: "  1. druid creates EtcdSnapshot demo-before-3-7-3-8. An agent makes this full backup and verifies it.\n" +
				"  3. druid replaces the Pod of demo-bqdq7: 3.6.16 to 3.7.3.\n  4. druid replaces the Pod of demo-lgmkl: 3.6.16 to 3.7.3.\n",
			second: "  1. druid creates EtcdSnapshot demo-before-3-7-10-12. An agent makes this full backup and verifies it.\n" +
				"  3. druid replaces the Pod of demo-2wwww: 3.6.17 to 3.7.10.\n  4. druid replaces the Pod of demo-zzzzz: 3.6.17 to 3.7.10.\n",
			names: [2]Names{
				{"demo-bqdq7": "<broken>", "demo-lgmkl": "<follower>"}, {"demo-zzzzz": "<broken>", "demo-2wwww": "<follower>"},
			},
			want: "  1. druid creates EtcdSnapshot demo-before-<version>. An agent makes this full backup and verifies it.\n" +
				"  3. druid replaces the Pod of <member>: <version> to <version>.\n  4. druid replaces the Pod of <member>: <version> to <version>.\n",
		},
		"a restore": {
			first:  "Undone       at least 211 revisions: those after 48,000\n",
			second: "Undone       at least 1,211 revisions: those after 7\n",
			want:   "Undone       at least <n> revisions: those after <n>\n",
		},
		"Events": {
			first: "All conditions are as they should be.\n\n47h ago   Normal   ClusterFormed: The raft group exists.\n" +
				"47h ago   Warning  QuorumLost: 1 of 3 voters serve.\n",
			second: "All conditions are as they should be.\n\njust now  Normal   MemberReady: Member x is ready.\n",
			want:   "All conditions are as they should be.\n\n<Events>\n",
		},
		"a plan": {
			first:  "Data         certain up to revision 48,208\nLost         at most 3 revisions and 5 seconds of writes\nHash         5d41402abc4b2a76\n",
			second: "Data         certain up to revision 9\nLost         at most 1,000 revisions and 0 seconds of writes\nHash         0123456789abcdef\n",
			want:   "Data         certain up to revision <n>\nLost         at most <n> revisions and <n> seconds of writes\nHash         <id>\n",
		},
		"members that were asked": {
			first: "x; member <lost>: no quorum responds, and this member has no data that it can resume: member list: no linearizable answer: dial " +
				"http://a.demo-peer.default.svc:2379: connect to a: dial tcp 10.0.0.1:2379: connect: connection refused; member list of " +
				"http://b.demo-peer.default.svc:2379: context deadline exceeded; member <lost>: no quorum responds, and this member has no data " +
				"that it can resume: member list: no linearizable answer: member list of http://b.demo-peer.default.svc:2379: context deadline exceeded.",
			second: "x; member <lost>: no quorum responds, and this member has no data that it can resume: member list: i/o timeout; member <lost>: no " +
				"quorum responds, and this member has no data that it can resume: member list: context deadline exceeded.",
			want: "x; member <lost>: no quorum responds, and this member has no data that it can resume: <errors>; member <lost>: no quorum responds, " +
				"and this member has no data that it can resume: <errors>",
		},
		"a note about members that were asked": {
			first:  "<lost>: No quorum responds, and this member has no data that it can resume: member list: i/o timeout.\nend",
			second: "<lost>: No quorum responds, and this member has no data that it can resume: member list: dial http://a: refused; dial http://b: x.\nend",
			want:   "<lost>: No quorum responds, and this member has no data that it can resume: <errors>\nend",
		},
		"an agent that reports the end of its watch": {
			first: "Backups      ✖ failing: watch etcd after revision 7: rpc error: code = Unavailable desc = EOF\n             restorable: unknown\n" +
				"Changes since about 2026-11-27 22:27 UTC are not saved: watch etcd after revision 7: rpc error: desc = EOF. Until a backup succeeds",
			second: "Backups      restorable: unknown\nChanges since about 2026-11-27 22:27 UTC are not saved. No agent reported an error: check that the cluster has " +
				"a leader and that its agent runs. Until a backup succeeds",
			want: "Backups      restorable: unknown\nChanges since about <time> are not saved: <reason>. Until a backup succeeds",
		},
		"an error that is further up on the page": {
			first:  "Changes since about 2026-11-27 22:27 UTC are not saved: see above. Until a backup succeeds",
			second: "Changes since about 2026-11-27 22:27 UTC are not saved. No agent reported an error: check that it runs. Until a backup succeeds",
			want:   "Changes since about <time> are not saved: <reason>. Until a backup succeeds",
		},
		"an error of a store": {
			first: "since about 2026-11-27 22:27 UTC: save revisions 32 to 37: put default/00000001-475634facf013ee4/delta/" +
				"0000000000000020-0000000000000025-1795818472026.delta.zst at http://10.96.0.7:7070: request ZQHDTBV3A3KCYVFN: access denied",
			second: "since about 2026-01-01 00:00 UTC: save revisions 1 to 1048576: put default/00000001-0123456789abcdef/delta/" +
				"0000000000000001-0000000000100000-1795818472027.delta.zst at http://10.200.10.7:7070: request 1539FEZJ44PZCK4G: access denied",
			want: "since about <time>: save revisions <n> to <n>: put default/<lineage>/delta/<id>-<id>-<id>.delta.zst at http://<address>: " +
				"request <id>: access denied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, text := range []string{c.first, c.second} {
				if diff := cmp.Diff(c.want, Steady(text, c.names[i])); diff != "" {
					t.Errorf("run %d (-want +got):\n%s", i+1, diff)
				}
			}
		})
	}
}

// TestSteadyKeepsTheState: each recorded situation stays another one, and so do its state, its conditions, and what to do.
func TestSteadyKeepsTheState(t *testing.T) {
	names := Names{"demo-bqdq7": "<leader>", "demo-lgmkl": "<follower>", "demo-sx47z": "<follower>"}
	files, err := filepath.Glob(filepath.Join(recorded, "status", "*.txt"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recorded outputs of status, %v", len(files), err)
	}
	seen := map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		got := Steady(text, names)
		if other := seen[got]; other != "" {
			t.Errorf("%s and %s are the same", file, other)
		}
		seen[got] = file
		if diff := cmp.Diff(got, Steady(got, names)); diff != "" {
			t.Errorf("%s changes once more:\n%s", file, diff)
		}
		if _, next, ok := strings.Cut(text, "What now\n"); ok && !strings.HasSuffix(got, replaced(names.replace(next))) {
			t.Errorf("%s: what to do is another:\n%s", file, got)
		}
		for _, word := range []string{"●", "✖", "QuorumLost", "Paused", "Degraded", "BackupsFailing", "NotReady", "was ", "failing"} {
			if strings.Count(got, word) != strings.Count(text, word) {
				t.Errorf("%s: the word %s is lost:\n%s", file, word, got)
			}
		}
	}
}

func TestLogSourcesAreListedOnce(t *testing.T) {
	got := LogSources("15:04:05.000 demo-sx47z etcd  INFO  ready\n15:04:05.001 demo-bqdq7 agent WARN  late a=b\n15:04:06.000 demo-sx47z etcd  INFO  ready\n"+
		"             demo-bqdq7 etcd        a panic\n15:04:06.000 demo-lgmkl etcd  INFO  ready\nThe log of etcd could not be read\n",
		Names{"demo-bqdq7": "<leader>", "demo-lgmkl": "<follower>", "demo-sx47z": "<follower>"})
	if want := "<follower> etcd\n<leader> agent\n<leader> etcd\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
