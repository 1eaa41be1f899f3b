package catalog

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

func TestNamesAreReadAsTheyWereWritten(t *testing.T) {
	moment := time.UnixMilli(1_795_000_000_123).UTC()
	for _, p := range []string{"", "a", "a/ns/demo"} {
		f := Full{Lineage: first, Key: FullKey(p, first, math.MaxInt64, moment), Revision: math.MaxInt64, At: moment}
		d := Delta{Lineage: first, Key: DeltaKey(p, first, 2, 0xabc, moment), From: 2, To: 0xabc, At: moment}
		last := Full{Lineage: first, Key: FinalKey(p, first, 17, moment), Revision: 17, At: moment, Final: true}
		gotFinal, ok := ParseFull(p, last.Key)
		if !ok {
			t.Errorf("%s is not read", last.Key)
		}
		diff(t, gotFinal, last)
		got, ok := ParseFull(p, f.Key)
		if !ok {
			t.Errorf("%s is not read", f.Key)
		}
		diff(t, got, f)
		gotDelta, ok := ParseDelta(p, d.Key)
		if !ok {
			t.Errorf("%s is not read", d.Key)
		}
		diff(t, gotDelta, d)
		for _, key := range []string{f.Key, d.Key, last.Key, BootstrapKey(p, first)} {
			if err := store.CheckKey(key); err != nil {
				t.Error(err)
			}
		}
	}
	diff(t, DeltaKey("a/b", first, 2, 0xabc, moment), "a/b/00000001-aa/delta/0000000000000002-0000000000000abc-1795000000123.delta.zst")
	diff(t, FullKey("a/b", first, 17, moment), "a/b/00000001-aa/full/0000000000000011-1795000000123.snap.zst")
	diff(t, FinalKey("a/b", first, 17, moment), "a/b/00000001-aa/full/0000000000000011-1795000000123.final.zst")
	diff(t, BootstrapKey("a/b", first), "a/b/00000001-aa/lineage.json")
}

func TestNamesThatNoBackupHasAreIgnored(t *testing.T) {
	full, delta := FullKey(prefix, first, 17, noon), DeltaKey(prefix, first, 3, 17, noon)
	replace := func(s, old, by string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("%s has no %s", s, old)
		}
		return strings.Replace(s, old, by, 1)
	}
	for _, key := range []string{
		"", full + "x", "x" + full, replace(full, "ns/demo", "ns/demo2"), replace(full, "ns/demo/", "ns/demo/x/"), replace(full, "aa", "A"),
		replace(full, "00000001-", "0000001-"), replace(full, "0000000000000011", "11"), replace(full, "0000000000000011", "0000000000000000"),
		replace(full, "0000000000000011", "8000000000000000"), replace(full, "11-", "1A-"), replace(full, "11-", "11-0"), replace(full, "11-", "11--"),
		replace(full, "/full/", "/fulls/"), replace(full, ".snap.zst", ".snap.zst.tmp"), replace(full, "full", "delta"),
		replace(full, ".snap.zst", ".snap.final.zst"), replace(full, ".snap.zst", ".final.snap.zst"), replace(full, "11-", "11-0000000000000003-"),
		replace(delta, "delta", "full"), replace(delta, "11-", "02-"), replace(delta, "0000000000000003", "0000000000000000"),
	} {
		if f, ok := ParseFull(prefix, key); ok {
			t.Errorf("%s is read as %+v", key, f)
		}
		if d, ok := ParseDelta(prefix, key); ok {
			t.Errorf("%s is read as %+v", key, d)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add(FullKey(prefix, first, 17, noon))
	f.Add(FinalKey(prefix, first, 17, noon))
	f.Add(DeltaKey(prefix, first, 3, 17, noon))
	f.Fuzz(func(t *testing.T, key string) {
		if f, ok := ParseFull(prefix, key); ok && FullKey(prefix, f.Lineage, f.Revision, f.At) != key && FinalKey(prefix, f.Lineage, f.Revision, f.At) != key {
			t.Errorf("%s is read as %+v", key, f)
		}
		if d, ok := ParseDelta(prefix, key); ok && (DeltaKey(prefix, d.Lineage, d.From, d.To, d.At) != key || d.From > d.To) {
			t.Errorf("%s is read as %+v", key, d)
		}
	})
}
