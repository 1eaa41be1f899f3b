package boltcheck

import "fmt"

// Kind of damage.
type Kind uint8

// The kinds, in the order in which they are looked for.
const (
	// Truncated: the file is shorter than its own meta page says.
	Truncated Kind = iota + 1
	// BadMeta: neither meta page is valid.
	BadMeta
	// BadPage: a page is not what its tree says.
	BadPage
)

// DamagedError is why bytes that were read are no database. A read that failed is none.
type DamagedError struct {
	Kind Kind
	// Reason in words, with the page.
	Reason string
}

func (d *DamagedError) Error() string { return d.Reason }

func damaged(kind Kind, format string, args ...any) error {
	return &DamagedError{Kind: kind, Reason: fmt.Sprintf(format, args...)}
}
