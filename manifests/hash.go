package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// hash is the first half of the SHA-256 of content as JSON, in which the keys of a map are sorted and the fields of a
// struct stand in the order of their declaration.
func hash(content any) (string, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:len(sum)/2]), nil
}
