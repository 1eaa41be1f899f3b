package store

import (
	"fmt"
	"strings"
)

// Longest key, longest prefix of a bucket, and longest part of a key between slashes, in bytes: S3 takes 1024 for key and
// prefix, file systems 255 for a name, of which a temporary name needs some.
const (
	maxKey     = 768
	maxPrefix  = 255
	maxSegment = 200
)

// CheckKey refuses with ErrInvalid what is no key: names of letters, digits, '.', '_' and '-' that do not begin with a
// dot, joined by single slashes. So a key is a path below any directory, needs no escaping anywhere, and can never be
// taken for a temporary file. No key may be another key's directory: of "a" and "a/b" a store holds one.
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: empty key", ErrInvalid)
	}
	if len(key) > maxKey {
		return fmt.Errorf("%w: key of %d bytes, want at most %d", ErrInvalid, len(key), maxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if err := checkSegment(segment); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrInvalid, key, err)
		}
	}
	return nil
}

// CheckPrefix refuses with ErrInvalid what no key can begin with. The empty prefix is the beginning of all.
func CheckPrefix(prefix string) error {
	if whole := strings.TrimSuffix(prefix, "/"); whole != "" || prefix != "" {
		return CheckKey(whole)
	}
	return nil
}

// IsSegment reports whether name can stand between the slashes of a key.
func IsSegment(name string) bool { return checkSegment(name) == nil }

func checkSegment(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("empty name between slashes")
	case s[0] == '.':
		return fmt.Errorf("name %q begins with a dot", s)
	case len(s) > maxSegment:
		return fmt.Errorf("name of %d bytes, want at most %d", len(s), maxSegment)
	}
	for _, c := range []byte(s) {
		if !isKeyByte(c) {
			return fmt.Errorf("name %q has a byte that is no letter, digit, '.', '_' or '-'", s)
		}
	}
	return nil
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}
