package leases

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

func TestAPlanCountsOnlyForItsRequest(t *testing.T) {
	request := RestoreRequest{Nonce: "aa", Target: RestoreTarget{Lineage: "00000001-aa", Time: time.Unix(1700000000, 0).UTC()}}
	plan := RestorePlan{Nonce: "aa", Lineage: "00000001-aa", Full: "full", Revision: 7}
	text := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	another := plan
	another.Nonce = "bb"
	both := request
	both.Target.Revision = 7
	for name, test := range map[string]struct {
		request, plan string
		known, open   bool
	}{
		"no request":                     {"", text(plan), false, false},
		"no plan":                        {text(request), "", true, true},
		"the plan":                       {text(request), text(plan), true, false},
		"a plan for another request":     {text(request), text(another), true, true},
		"a plan that failed":             {text(request), text(RestorePlan{Nonce: "aa", Error: "the store is away"}), true, true},
		"a plan that says nothing":       {text(request), text(RestorePlan{Nonce: "aa"}), true, true},
		"a plan that cannot be read":     {text(request), "{", true, true},
		"a request that cannot be read":  {"{", text(plan), false, false},
		"a request with two targets":     {text(both), text(plan), false, false},
		"a request that names no target": {text(RestoreRequest{Nonce: "aa"}), "", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{}
			lease.Annotations = map[string]string{AnnotationRestoreRequest: test.request, AnnotationRestorePlan: test.plan}
			r := DecodeRestore(lease)
			if known := r.Request.Nonce != ""; known != test.known || r.Open() != test.open {
				t.Errorf("known %t, open %t; want %t, %t: %+v", known, r.Open(), test.known, test.open, r)
			}
		})
	}
}

func TestAnOrderToRestoreNamesWhatItRestores(t *testing.T) {
	whole := Recovery{
		Epoch: 2, Nonce: "bb", Mode: RecoverRestore, Chosen: "demo-b", Lineage: "00000001-aa", Revision: 7, Target: &RestoreTarget{}, Request: "cc",
	}
	prepared, err := formedRecord().Prepare(whole)
	if err != nil || !prepared.Order().Restores() {
		t.Fatalf("%+v, %v", prepared.Order(), err)
	}
	for name, change := range map[string]func(*Recovery){
		"no target":                       func(o *Recovery) { o.Target = nil },
		"no request":                      func(o *Recovery) { o.Request = "" },
		"no lineage":                      func(o *Recovery) { o.Lineage = "" },
		"no revision":                     func(o *Recovery) { o.Revision = 0 },
		"a survivor that has a target":    func(o *Recovery) { o.Mode = RecoverSurvivor },
		"a target with time and revision": func(o *Recovery) { o.Target = &RestoreTarget{Revision: 1, Time: time.Unix(1, 0)} },
	} {
		order := whole
		change(&order)
		if _, err := formedRecord().Prepare(order); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	next := *prepared.Order()
	next.Report = "digest"
	executed, err := prepared.Execute(next)
	if err != nil {
		t.Fatal(err)
	}
	a := RecoveryAttempt{Order: "2-bb", Nonce: "cc", PodUID: "pod", ClusterID: "9"}
	claimed, err := executed.Claimed(a)
	if err != nil {
		t.Fatal(err)
	}
	formed, err := claimed.Reformed(a, Recovered{Epoch: 2, Mode: RecoverRestore, Member: "demo-b", Revision: 9}, Fork{Parent: "00000001-aa", Revision: 7})
	if err != nil || formed.Recovered.Request != "cc" || formed.Recovered.Replaced != formedRecord().Lineage {
		t.Errorf("the result does not name the request and the replaced lineage: %+v, %v", formed.Recovered, err)
	}
}
