package leases

import (
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// What the admission policy reads in an annotation is what druid and the agents read.
func TestAnAnnotationHasOneReading(t *testing.T) {
	own := Replacing{Member: "a", PodUID: "own", MemberID: "1"}
	for name, tc := range map[string]struct {
		text  string
		fails bool
		want  Replacing
	}{
		"as it is written":           {`{"member":"a","podUID":"own","memberID":"1"}`, false, own},
		"a key twice":                {`{"member":"a","podUID":"own","memberID":"1","podUID":"other"}`, true, Replacing{}},
		"an escaped key twice":       {`{"member":"a","podUID":"own","memberID":"1","\u0070odUID":"other"}`, true, Replacing{}},
		"a key in another case":      {`{"member":"a","podUID":"own","memberID":"1","PODUID":"other"}`, false, own},
		"a key of another version":   {`{"member":"a","podUID":"own","memberID":"1","later":{"podUID":"other"}}`, false, own},
		"something after the object": {`{"member":"a","podUID":"own","memberID":"1"}{}`, true, Replacing{}},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{}
			if err := (Record{Phase: PhaseFormed}).Encode(lease); err != nil {
				t.Fatal(err)
			}
			lease.Annotations[annotationReplacing] = tc.text
			record, err := DecodeRecord(lease)
			if tc.fails {
				if !errors.Is(err, ErrUnreadable) {
					t.Errorf("it is read as %+v, %v; want ErrUnreadable", record.Replacing, err)
				}
				return
			}
			if err != nil || record.Replacing == nil || *record.Replacing != tc.want {
				t.Errorf("it is read as %+v, %v; want %+v", record.Replacing, err, tc.want)
			}
		})
	}
}

// The list is information. A text that cannot be read hides no other part of the record.
func TestAMemberListThatCannotBeReadIsNone(t *testing.T) {
	lease := &coordinationv1.Lease{}
	if err := (Record{Phase: PhaseFormed, MemberList: &MemberList{RaftTerm: 2, RaftIndex: 9}}).Encode(lease); err != nil {
		t.Fatal(err)
	}
	if record, err := DecodeRecord(lease); err != nil || record.MemberList == nil || record.MemberList.RaftIndex != 9 {
		t.Errorf("the list is read as %+v, %v", record.MemberList, err)
	}
	lease.Annotations[annotationMemberList] = `{"raftTerm":"x"}`
	if record, err := DecodeRecord(lease); err != nil || record.MemberList != nil {
		t.Errorf("it is read as %+v, %v; want none", record.MemberList, err)
	}
}
