package leases

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// largestClaim has every field set, with seven voters and large numbers.
func largestClaim() Claim {
	voters := strings.Repeat("fedcba9876543210,", 7)
	return Claim{
		Pod: "3f0c2a52-7a0e-4f0e-9a43-0c9f0d1f2b11", Volume: "3f0c2a52-7a0e-4f0e-9a43-0c9f0d1f2b12", State: DiskCorrupt, Kind: "consistent-index-ahead",
		WholeDB: true, Cluster: "cdf818194e3a8c32", Member: "8e9e05c52164694d", Epoch: 1234, Lineage: "000004d2-0011223344556677",
		LastTerm: 123456, Last: 123456789012, Commit: 123456789012, Applied: 123456789012, Tail: 123456, Revision: 123456789012,
		Voters: voters[:len(voters)-1], Size: 8 << 30, Free: 100 << 30,
	}
}

func TestAClaimIsReadAsItWasWritten(t *testing.T) {
	for name, want := range map[string]Claim{
		"with every field": largestClaim(),
		"an empty disk":    {Pod: "p", Volume: "v", State: DiskEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := want.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got := ParseClaim(text)
			if got == nil {
				t.Fatalf("%s was not read", text)
			}
			if diff := cmp.Diff(*got, want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

func TestAnInvalidClaimIsUnknown(t *testing.T) {
	for name, change := range map[string]func(*Claim){
		"without a Pod":           func(c *Claim) { c.Pod = "" },
		"in a state of its own":   func(c *Claim) { c.State = "fine" },
		"intact without an epoch": func(c *Claim) { c.State, c.Epoch = DiskIntact, 0 },
		"empty with a log":        func(c *Claim) { c.State = DiskEmpty },
		"of a member without ID":  func(c *Claim) { c.State, c.Member = DiskIntact, "" },
		"with a voter without ID": func(c *Claim) { c.Voters = "a,,b" },
		"with a voter 0":          func(c *Claim) { c.Voters = "0" },
		"with an ID that is none": func(c *Claim) { c.Cluster = "xyz" },
		"with a negative size":    func(c *Claim) { c.Size = -1 },
		"that is too long":        func(c *Claim) { c.Kind = strings.Repeat("x", MaxClaim) },
	} {
		t.Run(name, func(t *testing.T) {
			c := largestClaim()
			change(&c)
			if text, err := c.Encode(); err == nil {
				t.Errorf("%s was written", text)
			}
		})
	}
	for _, text := range []string{"", "{", "[]", "null", `{"pod":"p"}`, `{"pod":"p","state":"intact","epoch":-1}`} {
		if got := ParseClaim(text); got != nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

// FuzzClaim: whatever the annotation says, it is unknown or valid, and is written as it was read.
func FuzzClaim(f *testing.F) {
	text, err := largestClaim().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(`{"pod":"p","state":"empty"}`)
	f.Fuzz(func(t *testing.T, s string) {
		read := ParseClaim(s)
		if read == nil {
			return
		}
		text, err := read.Encode()
		if err != nil && len(s) > MaxClaim/2 { // escapes can make the text longer
			return
		}
		again := ParseClaim(text)
		if err != nil || again == nil || *again != *read {
			t.Errorf("%q is written as %q: %v", s, text, err)
		}
	})
}
