package leases

import (
	"errors"

	kjson "sigs.k8s.io/json"
)

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
