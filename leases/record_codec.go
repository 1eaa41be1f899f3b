package leases

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	kjson "sigs.k8s.io/json"
)

// ErrUnreadable marks a Lease with invalid content. Unreadable content is unknown, and no action follows from it.
var ErrUnreadable = errors.New("unreadable Lease")

// Encode writes the record into lease and leaves other content of the Lease unchanged.
func (r Record) Encode(lease *coordinationv1.Lease) error {
	holder := ""
	if r.ClusterID != 0 {
		holder = FormatID(r.ClusterID)
	}
	lease.Spec.HolderIdentity = &holder
	set := func(key, value string) { setAnnotation(lease, key, value) }
	set(annotationPhase, string(r.Phase))
	set(annotationSeed, r.Seed)
	set(annotationEpoch, strconv.FormatUint(uint64(r.Epoch), 10))
	set(annotationFormedEpoch, strconv.FormatUint(uint64(r.FormedEpoch), 10))
	set(annotationNonce, r.Nonce)
	set(annotationExecutor, r.Executor)
	set(annotationLineage, r.Lineage)
	set(annotationMaxLearners, strconv.Itoa(r.MaxLearners))
	set(annotationMembers, strings.Join(r.Members, ","))
	set(annotationReleased, formatKnown(uint64(r.Released)))
	set(annotationExternals, strings.Join(r.Externals, ","))
	set(annotationLeaving, map[bool]string{true: flagSet}[r.Leaving])
	if err := errors.Join(setJSON(lease, annotationFork, r.Fork), setJSON(lease, annotationReplacing, r.Replacing)); err != nil {
		return err
	}
	if err := setJSON(lease, annotationPendingRemoval, r.PendingRemoval); err != nil {
		return err
	}
	if err := r.encodeRecovery(lease); err != nil {
		return err
	}
	return setJSON(lease, annotationMemberList, r.MemberList)
}

func (r Record) encodeRecovery(lease *coordinationv1.Lease) error {
	if r.Recovery != nil {
		if err := r.Recovery.check(); err != nil {
			return err
		}
	}
	return errors.Join(setJSON(lease, annotationRecovery, r.Recovery), setJSON(lease, annotationRecoveryAttempt, r.Attempt),
		setJSON(lease, annotationRecovered, r.Recovered))
}

// DecodeRecord reads the record from lease. Any error wraps ErrUnreadable.
func DecodeRecord(lease *coordinationv1.Lease) (Record, error) {
	d := decoder{annotations: lease.Annotations}
	r := Record{
		ClusterID:   d.holderID(lease.Spec.HolderIdentity),
		Phase:       d.phase(),
		Seed:        d.text(annotationSeed),
		Epoch:       uint32(d.number(annotationEpoch, 32)),
		FormedEpoch: uint32(d.number(annotationFormedEpoch, 32)),
		Nonce:       d.text(annotationNonce),
		Executor:    d.text(annotationExecutor),
		Lineage:     d.text(annotationLineage),
		MaxLearners: int(d.number(annotationMaxLearners, 16)),
		Members:     d.names(annotationMembers),
		Released:    uint32(d.optional(annotationReleased, 32)),
		Upgrade:     DecodeUpgrade(lease),
		Restore:     DecodeRestore(lease),
		Externals:   d.names(annotationExternals),
		Leaving:     d.flag(annotationLeaving),
		Auth:        parseAuth(lease.Annotations[annotationAuth]),
		Undecided:   parseUndecided(lease.Annotations[annotationUndecided]),
	}
	d.object(annotationFork, &r.Fork)
	d.object(annotationReplacing, &r.Replacing)
	d.object(annotationPendingRemoval, &r.PendingRemoval)
	r.MemberList = parseMemberList(lease.Annotations[annotationMemberList])
	d.object(annotationRecovery, &r.Recovery)
	d.object(annotationRecoveryAttempt, &r.Attempt)
	d.object(annotationRecovered, &r.Recovered)
	if r.Recovery != nil && d.err == nil {
		d.err = r.Recovery.check()
	}
	if d.err != nil {
		return Record{}, fmt.Errorf("cluster record %s/%s: %w", lease.Namespace, lease.Name, d.err)
	}
	return r, nil
}

// decoder reads annotations and keeps the first error.
type decoder struct {
	annotations map[string]string
	err         error
}

func (d *decoder) fail(key, value, want string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: annotation %s is %q, want %s", ErrUnreadable, key, value, want)
	}
}

func (d *decoder) text(key string) string { return d.annotations[key] }

func (d *decoder) number(key string, bits int) uint64 {
	n, err := strconv.ParseUint(d.annotations[key], 10, bits)
	if err != nil {
		d.fail(key, d.annotations[key], fmt.Sprintf("a number of at most %d bits", bits))
	}
	return n
}

// flagSet is the value of an annotation that is either set or absent.
const flagSet = "true"

func (d *decoder) flag(key string) bool {
	value := d.annotations[key]
	if value != "" && value != flagSet {
		d.fail(key, value, flagSet+" or nothing")
	}
	return value == flagSet
}

func (d *decoder) phase() Phase {
	switch p := Phase(d.annotations[annotationPhase]); p {
	case PhaseForming, PhaseFormed, PhaseRecovering:
		return p
	default:
		d.fail(annotationPhase, string(p), "Forming, Formed or Recovering")
		return ""
	}
}

func (d *decoder) names(key string) []string {
	value := d.annotations[key]
	if value == "" {
		return nil
	}
	names := strings.Split(value, ",")
	if slices.Contains(names, "") {
		d.fail(key, value, "names between commas")
	}
	return names
}

func (d *decoder) holderID(holder *string) uint64 {
	if holder == nil {
		return 0
	}
	id, err := ParseID(*holder)
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("holderIdentity: %w", err)
	}
	return id
}

func (d *decoder) id(key string) uint64 {
	id, err := ParseID(d.annotations[key])
	if err != nil {
		d.fail(key, d.annotations[key], "a hexadecimal ID")
	}
	return id
}

func (d *decoder) object(key string, into any) {
	value := d.annotations[key]
	if value == "" {
		return
	}
	if err := decodeJSON(value, into); err != nil {
		d.fail(key, value, "JSON: "+err.Error())
	}
}

// parseMemberList reads the annotation. It ignores an unreadable one, which is only information: the leader's agent writes it again.
func parseMemberList(s string) *MemberList {
	var list *MemberList
	if s == "" || decodeJSON(s, &list) != nil {
		return nil
	}
	return list
}

func setAnnotation(lease *coordinationv1.Lease, key, value string) {
	if value == "" {
		delete(lease.Annotations, key)
		return
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[key] = value
}

func setJSON[T any](lease *coordinationv1.Lease, key string, value *T) error {
	if value == nil {
		setAnnotation(lease, key, "")
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode annotation %s: %w", key, err)
	}
	setAnnotation(lease, key, string(raw))
	return nil
}

// decodeJSON reads the JSON text of an annotation as the admission policy reads it: a key counts only in its exact case, and a text
// with a known key twice is an error. encoding/json ignores the case, and takes the last of two equal keys.
//
// A key that this version does not know is ignored, so that agents and druid of two versions read what the other one writes. A removal
// request is an exception, because druid deletes a volume for it: ParseRemovalRequest accepts only what Encode writes.
func decodeJSON(text string, into any) error {
	return decodeStrict(text, into, kjson.DisallowDuplicateFields)
}

// decodeKnown is decodeJSON for a text in which each key must be known.
func decodeKnown(text string, into any) error {
	return decodeStrict(text, into, kjson.DisallowDuplicateFields, kjson.DisallowUnknownFields)
}

func decodeStrict(text string, into any, options ...kjson.StrictOption) error {
	strict, err := kjson.UnmarshalStrict([]byte(text), into, options...)
	return errors.Join(append(strict, err)...)
}
