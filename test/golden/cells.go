package golden

import (
	"fmt"
	"iter"
	"strings"
)

// Bits yields each one-bit value of the mask all, and "any" never: what a fact may be.
func Bits[T ~uint8](all T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for b := T(1); b != 0 && b <= all; b <<= 1 {
			if all&b != 0 && !yield(b) {
				return
			}
		}
	}
}

// Cell renders a rule's cell: the values that it holds, or nothing where it holds all.
func Cell[T interface {
	~uint8
	fmt.Stringer
}](mask, all T) string {
	if mask == all {
		return ""
	}
	var names []string
	for b := range Bits(mask) {
		names = append(names, b.String())
	}
	return strings.Join(names, ", ")
}
