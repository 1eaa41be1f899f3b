package backup

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/verify"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/test/backups"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/machine"
)

func TestBackupsOfARealEtcd(t *testing.T) {
	url, s := directory(t)
	c := backups.Make(t, s, demo, catalog.Formation{Lineage: first, ClusterID: "c", Created: time.Now()})
	h := c.Histories[0]
	at := []string{"--store", url, "--prefix", demo}
	in := func(command string, args ...string) []string {
		return append(append([]string{command}, at...), args...)
	}
	name := func(key string) string { return strings.TrimPrefix(key, demo+"/") }

	contains(t, ok(t, in("list")...), "LINEAGE", string(first), "  2      3  ", "6-21")
	listed := decoded[timeline](t, ok(t, in("list", "-o", "json")...))
	if l := listed.Lineages[0]; l.Fulls != 2 || l.Deltas != 3 || len(l.Restorable) != 1 || l.Restorable[0].To != 21 || l.Formation.ClusterID != "c" {
		t.Errorf("got %+v", listed)
	}
	shown := ok(t, in("show")...)
	contains(t, shown, name(h.Fulls[0].Key), name(h.Deltas[2].Key), "delta  7     11")
	if strings.Contains(shown, demo) {
		t.Errorf("want names without the prefix in\n%s", shown)
	}
	if got := decoded[catalog.Catalog](t, ok(t, in("show", "-o", "json", "--lineage", string(first))...)); len(got.Histories[0].Deltas) != 3 {
		t.Errorf("got %+v", got)
	}

	contains(t, ok(t, in("plan")...), "full   16", "delta  17", "2 objects", "to revision 21 of lineage "+string(first))
	plan := decoded[catalog.Plan](t, ok(t, in("plan", "--revision", "14", "-o", "json")...))
	if plan.Revision != 14 || plan.Full.Revision != 6 || len(plan.Deltas) != 2 {
		t.Errorf("got %+v", plan)
	}
	contains(t, ok(t, in("plan", "--time", h.Deltas[2].At.Add(time.Hour).Format(time.RFC3339))...), "at most, cut off at")
	contains(t, ok(t, in("plan", "--without", name(h.Fulls[1].Key))...), "full   6", "4 objects")
	contains(t, ok(t, in("plan", "--object", filepath.Base(h.Fulls[0].Key))...), "1 object, ")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{in("plan", "--revision", "22"), 2, "revisions 6 to 21"},
		{in("plan", "--time", "2001-01-01T00:00:00Z"), 2, "before the first backup"},
		{in("plan", "--without", name(h.Fulls[1].Key), "--without", name(h.Deltas[0].Key)), 2, "no delta backup with revisions 7 to 11"},
		{in("plan", "--object", "x"), 2, `has the name "x"`},
		{in("plan", "--lineage", "00000009-aa"), 2, "the store has " + string(first)},
		{in("show", "--lineage", "00000009-aa"), 2, "backup list"},
		{in("check", "--lineage", "00000009-aa"), 2, "backup list"},
		{in("plan", "--revision", "5", "--object", "x"), 1, "specify only one"},
		{in("plan", "--time", "yesterday"), 1, "want a time with a time zone"},
		{in("plan", "--without", "x"), 1, "backup show"},
	} {
		if out, code, failure := run(t, test.args...); code != test.code || !strings.Contains(failure, test.says) {
			t.Errorf("%v: exit code %d, %q, want %d and %q\n%s", test.args, code, failure, test.code, test.says, out)
		}
	}

	t.Run("check", func(t *testing.T) {
		contains(t, ok(t, in("check")...), "5 objects: 5 intact, 0 broken, 0 not read")
		brokenURL, brokenStore := directory(t)
		ok(t, in("copy", "--to", brokenURL)...)
		put(t, brokenStore, h.Deltas[1].Key, "torn")
		out, code, failure := run(t, "check", "--store", brokenURL, "--prefix", demo, "-o", "json")
		v := decoded[verification](t, out)
		if code != 2 || v.Objects != 5 || v.Broken != 1 || v.Unknown != 0 || !strings.Contains(failure, "1 of 5 objects broken") {
			t.Errorf("exit code %d, %q, %+v", code, failure, v)
		}
		out, _, _ = run(t, "check", "--store", brokenURL, "--prefix", demo)
		contains(t, out, "broken          4 B  delta backup "+h.Deltas[1].Key, "5 objects: 4 intact, 1 broken")
	})
	t.Run("verify", func(t *testing.T) {
		scratch := t.TempDir()
		contains(t, ok(t, in("verify", "--scratch", scratch)...), name(h.Fulls[1].Key)+": restored to revision 21", "verified: at revision 21 it has 7 keys")
		r := decoded[verify.Result](t, ok(t, in("verify", "--scratch", scratch, "--revision", "14", "-o", "json")...))
		if r.Verdict != verify.Verified || r.Checkpoint.Revision != 11 || r.Revision != 14 {
			t.Errorf("got %+v", r)
		}
		if out, code, failure := run(t, in("verify", "--scratch", scratch, "--object", filepath.Base(h.Fulls[0].Key))...); code != 1 ||
			!strings.Contains(failure, "no checkpoint") {
			t.Errorf("a full alone: exit code %d, %q\n%s", code, failure, out)
		}
		if _, code, failure := run(t, in("verify", "--scratch", filepath.Join(scratch, "no"))...); code != 1 || !strings.Contains(failure, "no scratch directory") {
			t.Errorf("nowhere: exit code %d, %q", code, failure)
		}
		brokenURL, brokenStore := directory(t)
		ok(t, in("copy", "--to", brokenURL)...)
		put(t, brokenStore, h.Deltas[2].Key, "torn")
		out, code, failure := run(t, "verify", "--store", brokenURL, "--prefix", demo, "--scratch", scratch, "-o", "json")
		if r := decoded[verify.Result](t, out); code != 2 || r.Object != h.Deltas[2].Key || !strings.Contains(failure, "broken: ") {
			t.Errorf("exit code %d, %q, %+v", code, failure, r)
		}
		if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
			t.Errorf("the scratch directory has %v, %v", left, err)
		}
	})
	t.Run("restore", func(t *testing.T) { testRestore(t, h, at) })
	t.Run("a terminal", func(t *testing.T) { testTerminal(t, in) })
	t.Run("a bucket", func(t *testing.T) { testBucket(t, s, in, name(h.Fulls[0].Key)) })
}

// testTerminal looks at a terminal that shows the progress. The output is the same as without one.
func testTerminal(t *testing.T, in func(string, ...string) []string) {
	target, _ := directory(t)
	for _, c := range []struct {
		args []string
		says string
	}{{in("check"), "Checking: "}, {in("copy", "--to", target), "Copying: "}, {in("copy", "--to", target), "Copying: "}} {
		terminal, shown := machine.OpenTerminal(t)
		out, code := runOn(t, terminal, c.args...)
		if text := shown(); code != 0 || !strings.Contains(text, c.says) || !strings.HasSuffix(text, "\r\033[K") {
			t.Errorf("%v: exit code %d, the terminal shows %q, want %q, and at the end nothing", c.args, code, text, c.says)
		}
		contains(t, out, " objects")
	}
}

// testBucket copies the backups into a bucket and works there. oldest is the older of the two full backups.
func testBucket(t *testing.T, s store.Store, in func(string, ...string) []string, oldest string) {
	server := bucket.Start(t)
	name := server.Make(t, "cli", true)
	admin := credentials(t, bucket.AccessKey, bucket.SecretKey)
	url := "s3://" + name + "/some/backups?pathStyle=true&region=" + bucket.Region + "&endpoint=" + server.Endpoint
	put(t, s, demo+"/notes.txt", "an unknown member")
	copying := in("copy", "--to", url, "--to-prefix", "moved/demo", "--to-credentials", admin)
	contains(t, ok(t, copying...), "copied", "6 objects in")
	contains(t, ok(t, copying...), "present", "6 objects in")
	if out := ok(t, copying...); strings.Contains(out, "copied") || strings.Contains(out, "notes") {
		t.Errorf("want all present and no unknown member in\n%s", out)
	}
	at := []string{"--store", url, "--credentials", admin, "--prefix", "moved/demo"}
	contains(t, ok(t, append([]string{"list"}, at...)...), "6-21")
	contains(t, ok(t, append([]string{"check"}, at...)...), "5 objects: 5 intact")
	contains(t, ok(t, append([]string{"gc", "--count", "1"}, at...)...), "0 of 5 objects")
	contains(t, ok(t, append([]string{"gc", "--count", "1", "--broken", oldest}, at...)...), "would-delete", "3 of 5 objects")
	contains(t, ok(t, append([]string{"gc", "--count", "1", "--broken", oldest, "--delete"}, at...)...), "deleted", "3 objects deleted, 0 locked")
	contains(t, ok(t, append([]string{"list"}, at...)...), "16-21")
	t.Run("reported in a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "store.json")
		config, err := json.Marshal(store.Config{S3: &store.S3{
			Bucket: name, Prefix: "some/backups/moved", Region: bucket.Region, Endpoint: server.Endpoint, PathStyle: true, CredentialsDir: admin,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, config, 0o600); err != nil {
			t.Fatal(err)
		}
		contains(t, ok(t, "list", "--store", file, "--prefix", "demo"), "16-21")
	})
	t.Run("with the ambient identity", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", bucket.AccessKey)
		t.Setenv("AWS_SECRET_ACCESS_KEY", bucket.SecretKey)
		contains(t, ok(t, "list", "--store", url, "--prefix", "moved/demo"), "16-21")
	})
	server.User(t, "denied", "denied-secret")
	denied := credentials(t, "denied", "denied-secret")
	otherRegion := strings.Replace(url, bucket.Region, "eu-central-1", 1)
	for name, test := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"no bucket": {[]string{"--store", strings.Replace(url, "s3://cli/", "s3://other/", 1), "--credentials", admin}, 1,
			[]string{"other", "create the bucket"}},
		"denied": {[]string{"--store", url, "--credentials", denied}, 1, []string{"cli", "access denied", "s3:GetObject"}},
		"no credentials": {[]string{"--store", url, "--credentials", t.TempDir()}, 1,
			[]string{"accessKeyID", "mount the Secret with the credentials, or correct it"}},
		"the wrong secret": {[]string{"--store", url, "--credentials", credentials(t, bucket.AccessKey, "x")}, 1,
			[]string{"the secret access key does not match"}},
		"another region":       {[]string{"--store", otherRegion, "--credentials", admin}, 1, []string{"region", "cli"}},
		"the port is closed":   {[]string{"--store", "s3://cli?endpoint=ftp://host"}, 1, []string{"--store", "s3.endpoint", "https://host"}},
		"nothing there":        {[]string{"--store", url, "--credentials", admin, "--prefix", "no/such"}, 2, []string{`below "no/such"`, "moved/demo", "--prefix"}},
		"the store as a whole": {[]string{"--store", url, "--credentials", admin}, 2, []string{"moved/demo", "--prefix"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, code, failure := run(t, append([]string{"list"}, test.args...)...)
			if code != test.code || out != "" {
				t.Errorf("exit code %d, want %d; printed %q", code, test.code, out)
			}
			contains(t, failure, test.says...)
		})
	}
}

func TestGCDeletesOnlyWhenReported(t *testing.T) {
	url, s := directory(t)
	var names []string
	for i := range int64(4) {
		key := catalog.FullKey(demo, first, 1+i, time.UnixMilli(1_790_000_000_000+i*1000))
		put(t, s, key, "x")
		names = append(names, strings.TrimPrefix(key, demo+"/"))
	}
	at := []string{"gc", "--store", url, "--prefix", demo}
	if _, code, failure := run(t, at...); code != 1 || !strings.Contains(failure, "--keep-all") {
		t.Errorf("without a rule: exit code %d, %q", code, failure)
	}
	if _, code, failure := run(t, append(at, "--count", "-1")...); code != 1 || !strings.Contains(failure, "count is negative") {
		t.Errorf("a negative rule: exit code %d, %q", code, failure)
	}
	if _, code, failure := run(t, append(at, "--count", "1", "--broken", "x")...); code != 1 || !strings.Contains(failure, "backup show") {
		t.Errorf("evidence of nothing: exit code %d, %q", code, failure)
	}
	if _, code, failure := run(t, append(at, "--count", "1", "--lineage", "00000009-aa")...); code != 2 || !strings.Contains(failure, "backup list") {
		t.Errorf("a lineage that is not there: exit code %d, %q", code, failure)
	}
	rules := append(at, "--count", "1", "--broken", names[3], "--verified", names[1])
	contains(t, ok(t, rules...), "would-delete", "kept", "the newest full backup of its lineage that is not known to be broken",
		"1 of 4 objects would be deleted, 1 B. Nothing was deleted")
	results := decoded[[]retentionResult](t, ok(t, append(rules, "-o", "json")...))
	if len(results) != 4 || results[0].Result != resultWouldDelete || results[1].Reason != catalog.ReasonVerified ||
		results[2].Reason != catalog.ReasonNewestIntact || results[3].Reason != catalog.ReasonNewest {
		t.Errorf("got %+v", results)
	}
	if c, err := catalog.Read(t.Context(), s, demo); err != nil || len(c.Histories[0].Fulls) != 4 {
		t.Errorf("a dry run left %+v, %v", c, err)
	}
	results = decoded[[]retentionResult](t, ok(t, append(rules, "--delete", "-o", "json")...))
	if len(results) != 1 || results[0].Result != resultDeleted {
		t.Errorf("got %+v", results)
	}
	if c, err := catalog.Read(t.Context(), s, demo); err != nil || len(c.Histories[0].Fulls) != 3 {
		t.Errorf("it left %+v, %v", c, err)
	}
	put(t, s, catalog.FullKey(demo, second, 1, time.UnixMilli(1_790_000_000_000)), "x")
	for l, reason := range map[catalog.Lineage]catalog.Reason{first: catalog.ReasonCount, second: catalog.ReasonOther} {
		results = decoded[[]retentionResult](t, ok(t, append(at, "--count", "3", "--lineage", string(l), "-o", "json")...))
		if len(results) != 4 || results[0].Reason != reason {
			t.Errorf("retention for %s: %+v", l, results)
		}
	}
}

func TestListReportsWhatIsOutOfTheOrdinary(t *testing.T) {
	url, s := directory(t)
	at := func(minute int) time.Time { return time.Date(2026, 11, 21, 12, minute, 0, 0, time.UTC) }
	twin := catalog.Lineage("00000002-cc")
	for _, b := range []catalog.Formation{{Lineage: first, Created: at(0)}, {Lineage: second, Parent: first, Fork: 20, Created: at(9)}} {
		if err := catalog.WriteBootstrap(t.Context(), s, "", b); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{
		catalog.FullKey("", first, 1, at(1)), catalog.DeltaKey("", first, 2, 9, at(2)), catalog.DeltaKey("", first, 14, 20, at(3)),
		catalog.FullKey("", first, 20, at(4)),
		catalog.FullKey("", twin, 30, at(10)), string(second) + "/full/readme.txt", "readme.txt", catalog.FinalKey("", twin, 31, at(11)),
	} {
		put(t, s, key, "x")
	}
	out := ok(t, "list", "--store", url)
	contains(t, out,
		"00000001-aa  2026-11-21T12:00:00Z  -            -     2      2       4 B   1-9        2026-11-21T12:01:00Z  2026-11-21T12:02:00Z",
		"                                                                    20-20      2026-11-21T12:04:00Z",
		"00000002-bb  2026-11-21T12:09:00Z  00000001-aa  20    0      0       0 B   none",
		"00000002-cc  ?                     ?            ?     2      0       2 B   30-30",
		"note: lineage 00000002-cc: final full backups that retention never deletes: 1 object",
		"note: lineages 00000002-bb and 00000002-cc have the same epoch",
		"note: lineage 00000002-cc: its parent is unknown: there is no 00000002-cc/lineage.json",
		"note: lineage 00000001-aa: no delta backup holds revisions 10 to 13: states between revisions 9 and 20 cannot be restored",
		"note: 2 objects are not backups and are ignored, for example readme.txt",
	)
	verified, _, _ := run(t, "check", "--store", url)
	contains(t, verified, "note: lineage 00000001-aa: no delta backup holds revisions 10 to 13: states between revisions 9 and 20 cannot be restored")
	contains(t, ok(t, "show", "--store", url), "00000002-cc  final ", "unknown", "00000002-bb/full/readme.txt")
	if out := ok(t, "show", "--store", url, "--lineage", string(second)); strings.Count(out, "\n") != 2 {
		t.Errorf("want the head and one object in\n%s", out)
	}
	contains(t, ok(t, "plan", "--store", url, "--lineage", string(second)), "to revision 20 of lineage 00000001-aa, cut off after revision 20",
		"note: lineage 00000002-bb has no full backup yet")
}

func TestTheProgramHasTheCommandsAtItsTop(t *testing.T) {
	url, _ := directory(t)
	var out bytes.Buffer
	run := func(args ...string) int {
		out.Reset()
		root := Program()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		return cli.Main(t.Context(), root, slog.New(slog.DiscardHandler))
	}
	if code := run("list", "--store", url); code != exitNo || !strings.HasPrefix(out.String(), "druid-backup list: no backups in ") {
		t.Errorf("list of an empty store: exit code %d, %s", code, out.String())
	}
	for _, args := range [][]string{{"version"}, {"completion", "bash"}} {
		if code := run(args...); code != 0 || out.Len() == 0 {
			t.Errorf("%v without a store: exit code %d, %s", args, code, out.String())
		}
	}
	for _, cmd := range Program().Commands() {
		if code := run(cmd.Name(), "--help"); code != 0 || strings.Contains(out.String(), "agent backup") {
			t.Errorf("the help of %s names another program:\n%s", cmd.Name(), out.String())
		}
	}
}
