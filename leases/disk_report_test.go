package leases

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// largestReport has every field set, with seven voters and large numbers.
func largestReport() DiskReport {
	voters := strings.Repeat("fedcba9876543210,", 7)
	return DiskReport{
		Pod: "3f0c2a52-7a0e-4f0e-9a43-0c9f0d1f2b11", Volume: "3f0c2a52-7a0e-4f0e-9a43-0c9f0d1f2b12", State: DiskCorrupt, Kind: "consistent-index-ahead",
		WholeDB: true, Cluster: "cdf818194e3a8c32", Member: "8e9e05c52164694d", Epoch: 1234, Lineage: "000004d2-0011223344556677", Prepared: 1235,
		LastTerm: 123456, Last: 123456789012, Commit: 123456789012, Applied: 123456789012, Tail: 123456, Revision: 123456789012,
		Voters: voters[:len(voters)-1], Size: 8 << 30, Free: 100 << 30,
		Orders: true, Order: "1235-0011223344556677", Corrupt: voters[:len(voters)-1],
	}
}

func TestADiskReportIsReadAsItWasWritten(t *testing.T) {
	for name, want := range map[string]DiskReport{
		"with every field": largestReport(),
		"an empty disk":    {Pod: "p", Volume: "v", State: DiskEmpty, Prepared: 2, Order: "2-ab"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := want.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got := ParseDiskReport(text)
			if got == nil {
				t.Fatalf("%s was not read", text)
			}
			if diff := cmp.Diff(*got, want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

func TestAnInvalidDiskReportIsUnknown(t *testing.T) {
	for name, change := range map[string]func(*DiskReport){
		"without a Pod":            func(c *DiskReport) { c.Pod = "" },
		"in a state of its own":    func(c *DiskReport) { c.State = "fine" },
		"intact without an epoch":  func(c *DiskReport) { c.State, c.Epoch = DiskIntact, 0 },
		"empty with a log":         func(c *DiskReport) { c.State = DiskEmpty },
		"of a member without ID":   func(c *DiskReport) { c.State, c.Member = DiskIntact, "" },
		"with a voter without ID":  func(c *DiskReport) { c.Voters = "a,,b" },
		"with a voter 0":           func(c *DiskReport) { c.Voters = "0" },
		"with an ID that is none":  func(c *DiskReport) { c.Cluster = "xyz" },
		"with a negative size":     func(c *DiskReport) { c.Size = -1 },
		"with an unreadable order": func(c *DiskReport) { c.Order = "2" },
		"with an alarm of no ID":   func(c *DiskReport) { c.Corrupt = "a,,b" },
		"that is too long":         func(c *DiskReport) { c.Kind = strings.Repeat("x", MaxDiskReport) },
	} {
		t.Run(name, func(t *testing.T) {
			c := largestReport()
			change(&c)
			if text, err := c.Encode(); err == nil {
				t.Errorf("%s was written", text)
			}
		})
	}
	for failed, order := range map[RestoreFailure]string{FailedSpace: "", RestoreFailure(strings.Repeat("x", maxFailure+1)): "2-ab"} {
		c := largestReport()
		c.Failed, c.Order = failed, order
		if text, err := c.Encode(); err == nil {
			t.Errorf("failure %q of order %q was written: %s", failed, order, text)
		}
	}
	for _, text := range []string{"", "{", "[]", "null", `{"pod":"p"}`, `{"pod":"p","state":"intact","epoch":-1}`} {
		if got := ParseDiskReport(text); got != nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

// An order relies on what the disk holds, and not on which Pod looked or how much space is free.
func TestTheDigestOfADiskReportCoversTheData(t *testing.T) {
	digest := largestReport().Digest()
	for name, change := range map[string]func(*DiskReport){
		"last":   func(c *DiskReport) { c.Last++ },
		"volume": func(c *DiskReport) { c.Volume = "other" },
		"state":  func(c *DiskReport) { c.State = DiskStale },
		"order":  func(c *DiskReport) { c.Order = "" },
		"voters": func(c *DiskReport) { c.Voters = "1" },
	} {
		c := largestReport()
		if change(&c); c.Digest() == digest {
			t.Errorf("the digest does not cover %s", name)
		}
	}
	c := largestReport()
	c.Pod, c.Free, c.Size, c.Failed, c.Corrupt = "other", 1, 2, FailedSpace, "1"
	if c.Digest() != digest {
		t.Error("the digest covers what changes without another inspection")
	}
}

// An alarm without a member names each of them.
func TestVotersThatADiskCanHave(t *testing.T) {
	for name, test := range map[string]struct {
		voters, uncommitted string
		want                [][]string
	}{
		"unknown":              {"", "", nil},
		"all are committed":    {"a,b", "", [][]string{{"a", "b"}}},
		"one is added":         {"a,b", "b", [][]string{{"a", "b"}, {"a"}}},
		"none is committed":    {"a,b", "a,b", [][]string{{"a", "b"}}},
		"one that is no voter": {"a,b", "c", [][]string{{"a", "b"}}},
	} {
		if got := (DiskReport{Voters: test.voters, Uncommitted: test.uncommitted}).VoterLists(); cmp.Diff(got, test.want) != "" {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestWhichMembersAnAlarmNames(t *testing.T) {
	for named, want := range map[string][2]bool{"": {}, "a": {true, false}, "a,b": {true, true}, "0": {true, true}, "ab": {}} {
		if got := [2]bool{DiskReport{Corrupt: named}.CallsCorrupt("a"), DiskReport{Corrupt: named}.CallsCorrupt("b")}; got != want {
			t.Errorf("%q: %v, want %v", named, got, want)
		}
	}
	if (DiskReport{}).CallsCorrupt("") {
		t.Error("no alarm names a member without an ID")
	}
}

// FuzzDiskReport: whatever the annotation says, it is unknown or valid, and is written as it was read.
func FuzzDiskReport(f *testing.F) {
	text, err := largestReport().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(`{"pod":"p","state":"empty"}`)
	f.Fuzz(func(t *testing.T, s string) {
		read := ParseDiskReport(s)
		if read == nil {
			return
		}
		text, err := read.Encode()
		if err != nil && len(s) > MaxDiskReport/2 { // escapes can make the text longer
			return
		}
		again := ParseDiskReport(text)
		if err != nil || again == nil || again.Digest() != read.Digest() {
			t.Errorf("%q is written as %q: %v", s, text, err)
		}
	})
}

// FuzzRecovery: whatever the annotation says, the record is unreadable or the order is valid.
func FuzzRecovery(f *testing.F) {
	f.Add(`{"epoch":2,"nonce":"ab","stage":"Prepare","mode":"Survivor","chosen":"demo-a"}`, `{"order":"2-ab"}`)
	f.Add(`{"epoch":2}`, `null`)
	f.Add(`{"epoch":2,"nonce":"ab","stage":"Prepare","mode":"Survivor","chosen":"demo-a","Chosen":"demo-b","chosen":"demo-c"}`,
		`{"order":"2-ab","podUID":"p","PODUID":"q"}`)
	f.Fuzz(func(t *testing.T, order, attempt string) {
		lease := &coordinationv1.Lease{}
		if err := (Record{Phase: PhaseRecovering, Epoch: 1, FormedEpoch: 1}).Encode(lease); err != nil {
			t.Fatal(err)
		}
		lease.Annotations[annotationRecovery], lease.Annotations[annotationRecoveryAttempt] = order, attempt
		record, err := DecodeRecord(lease)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) {
				t.Errorf("%v, want ErrUnreadable", err)
			}
			return
		}
		if err := record.Encode(lease); err != nil {
			t.Errorf("%q is read and cannot be written: %v", order, err)
		}
	})
}
