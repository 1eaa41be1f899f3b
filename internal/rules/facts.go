package rules

import (
	"fmt"
	"iter"
	"math/bits"
	"reflect"
)

// Answers to a question, for facts of the types Answer and YesNo.
const (
	No = 1 << iota
	Yes
	// Unknown is an error, a timeout, or an old answer. A YesNo has no such value.
	Unknown
)

type (
	// Answer is a fact that might be unknown.
	Answer uint8
	// YesNo is a fact that is always known.
	YesNo uint8
)

func (a Answer) String() string { return Word(a, "no", "yes", "unknown") }
func (a YesNo) String() string  { return Word(a, "no", "yes") }

// AnswerOf a question that was answered.
func AnswerOf(yes bool) Answer { return Answer(YesNoOf(yes)) }

// YesNoOf a condition.
func YesNoOf(yes bool) YesNo {
	if yes {
		return Yes
	}
	return No
}

// Word names a value, or nothing if it has no word. words are in the order of the bits. The String method of each fact's type calls it, so
// that a type has as many values as it has words.
func Word[T ~uint8](value T, words ...string) string {
	if i := bits.TrailingZeros8(uint8(value)); i < len(words) && value == 1<<i {
		return words[i]
	}
	return ""
}

// Cases yields each combination of facts that when matches: every fact has exactly one value. A field of when that is zero takes each
// value of its type.
func Cases[F any](when F) iter.Seq[F] {
	values := valuesOf[F]()
	for i, mask := range cellsOf(&when) {
		if mask != 0 {
			values[i] &= mask
		}
	}
	return func(yield func(F) bool) {
		var facts F
		cells := cellsOf(&facts)
		for i, all := range values {
			cells[i] = all & -all
		}
		for {
			if !yield(facts) {
				return
			}
			// The last fact changes first. One that had its last value begins with its first again, and carries to the one before it.
			i := len(cells) - 1
			for ; i >= 0; i-- {
				if above := values[i] &^ (cells[i] | (cells[i] - 1)); above != 0 {
					cells[i] = above & -above
					break
				}
				cells[i] = values[i] & -values[i]
			}
			if i < 0 {
				return
			}
		}
	}
}

// valuesOf each fact, as masks: the bits for which the String method of its type has a word. A fact that is no such enum has none.
func valuesOf[F any]() (masks []uint8) {
	for field := range reflect.TypeFor[F]().Fields() {
		masks = append(masks, 0)
		if field.Type.Kind() != reflect.Uint8 {
			continue
		}
		value := reflect.New(field.Type).Elem()
		for bit := uint64(1); bit < 1<<8; bit <<= 1 {
			value.SetUint(bit)
			if word, ok := reflect.TypeAssert[fmt.Stringer](value); ok && word.String() != "" {
				masks[len(masks)-1] |= uint8(bit)
			}
		}
	}
	return masks
}

// NotEnums are the names of the facts that are no enums of the underlying type uint8 whose String method has a word for each value.
func NotEnums[F any]() (names []string) {
	values := valuesOf[F]()
	for i := range values {
		if values[i] == 0 {
			names = append(names, reflect.TypeFor[F]().Field(i).Name)
		}
	}
	return names
}
