package model

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
)

// The policies are pure functions. In a walk, the druids and the user look far more often than what they see changes. So a world keeps what
// the policies say of each set of facts.

// said is what the policies say of some facts.
type said struct {
	steps  []policy.Step
	status map[string]lostStatus // by the status before
	e      policy.Evaluation
}

// checkedRepeat is how many repeats of facts there are for one that is decided again, and compared.
const checkedRepeat = 64

// evaluate decides every policy, or returns what was decided of the same facts.
func (w *lostWorld) evaluate(d policy.Desired, o policy.Observed) *said {
	w.facts = appendFacts(appendFacts(w.facts[:0], reflect.ValueOf(&d).Elem()), reflect.ValueOf(&o).Elem())
	if known := w.said[string(w.facts)]; known != nil {
		if w.repeats++; w.repeats%checkedRepeat == 0 && !reflect.DeepEqual(known.steps, policy.Steps(policy.Evaluate(d, o))) {
			w.violate("the policies do not say the same of the same facts: %+v", known.steps)
		}
		return known
	}
	e := policy.Evaluate(d, o)
	s := &said{steps: policy.Steps(e), status: map[string]lostStatus{}, e: e}
	w.said[string(w.facts)] = s
	return s
}

// statusAfter is the status that follows from the one before. It is that one if nothing is new.
func (w *lostWorld) statusAfter(before lostStatus, d policy.Desired, o policy.Observed) lostStatus {
	s := w.evaluate(d, o)
	now := metav1.NewTime(w.now)
	w.facts = fmt.Append(w.facts[:0], before.cluster, before.epoch, w.now.Unix())
	w.facts = appendFacts(w.facts, reflect.ValueOf(&before.recovery).Elem())
	after, known := s.status[string(w.facts)]
	if !known {
		next := policy.Status(s.e, v1alpha1.EtcdClusterStatus{ClusterID: before.cluster, Epoch: before.epoch, Recovery: before.recovery}, nil, 1, now)
		after = lostStatus{next.ClusterID, next.Epoch, next.Recovery}
		s.status[string(w.facts)] = after
	}
	if reflect.DeepEqual(before, after) {
		return before
	}
	return after
}

// appendFacts appends all of a value, so that two values with the same bytes are equal.
func appendFacts(b []byte, v reflect.Value) []byte {
	switch v.Kind() { //nolint:exhaustive // facts have no other kinds
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendFacts(append(b, 1), v.Elem())
	case reflect.Slice, reflect.Array:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		for i := range v.Len() {
			b = appendFacts(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		return appendStruct(b, v)
	case reflect.Map:
		if v.Len() == 0 {
			return append(b, 0)
		}
	}
	panic(fmt.Sprintf("no facts of %s", v.Type()))
}

func appendStruct(b []byte, v reflect.Value) []byte {
	if v.IsZero() {
		return append(b, 0)
	}
	b = append(b, 1)
	if v.Type() == timeType {
		t := v.Addr().Interface().(*time.Time)
		return binary.AppendVarint(b, t.UnixNano())
	}
	for _, field := range v.Fields() {
		b = appendFacts(b, field)
	}
	return b
}

var timeType = reflect.TypeFor[time.Time]()
