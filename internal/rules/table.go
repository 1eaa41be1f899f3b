package rules

import (
	"fmt"
	"iter"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// Uncovered is the rule of a decision on facts that no row matches.
const Uncovered = "uncovered"

// Row is one rule of a table.
//
// F is the struct of the facts. Each of its fields is one fact, an enum of one bit per value with the underlying type uint8, so that a cell
// of a row can hold several values. A field of When that is zero matches each value.
type Row[F, V any] struct {
	// Name is unique in its table. It appears in logs, metrics and Leases.
	Name    string
	When    F
	Verdict V
	// Why gives the reason for the verdict.
	Why string
	// Detail names what the observer saw that completes the reason, if anything does.
	Detail string
}

// Decision is the verdict of the row that won.
type Decision[V any] struct {
	Verdict V
	// Rule is the name of the row, or Uncovered.
	Rule string
	// Why and Detail are those of the row.
	Why, Detail string
}

// Table is an ordered list of rows. Its methods can be called concurrently.
type Table[F, V any] struct {
	rows []Row[F, V]
	// matching has the rows that match each value of each fact: matching[fact][bit of the value].
	matching  [][8]rowSet
	otherwise V
}

// rowSet has a bit for each row of a table, of which there are at most 128. The largest table has 51.
type rowSet [2]uint64

func (s rowSet) and(other rowSet) rowSet { return rowSet{s[0] & other[0], s[1] & other[1]} }

func (s rowSet) or(other rowSet) rowSet { return rowSet{s[0] | other[0], s[1] | other[1]} }

// first returns the index of the first row in the set, or -1.
func (s rowSet) first() int {
	switch {
	case s[0] != 0:
		return bits.TrailingZeros64(s[0])
	case s[1] != 0:
		return 64 + bits.TrailingZeros64(s[1])
	}
	return -1
}

// New makes a table of at most 128 rows; with more, it panics. The first row that matches decides. otherwise is the
// verdict if none does. rulestest.Check verifies that this never happens, and that each fact is an enum.
func New[F, V any](otherwise V, rows []Row[F, V]) *Table[F, V] {
	var all F
	t := &Table[F, V]{rows: rows, matching: make([][8]rowSet, len(cellsOf(&all))), otherwise: otherwise}
	for i := range rows {
		for fact, mask := range cellsOf(&rows[i].When) {
			for bit := range t.matching[fact] {
				if mask == 0 || mask&(1<<bit) != 0 {
					t.matching[fact][bit][i/64] |= 1 << (i % 64)
				}
			}
		}
	}
	return t
}

// Rows returns the rows of the table, in order. Do not change them.
func (t *Table[F, V]) Rows() []Row[F, V] { return t.rows }

// Decide returns the verdict of the first row that matches the facts. It depends on nothing else.
func (t *Table[F, V]) Decide(facts F) Decision[V] {
	set := t.everyRow()
	for fact, value := range cellsOf(&facts) {
		set = set.and(t.match(fact, value))
	}
	return t.decision(set)
}

func (t *Table[F, V]) everyRow() (set rowSet) {
	for i := range t.rows {
		set[i/64] |= 1 << (i % 64)
	}
	return set
}

// match returns the rows that match a value of a fact. A fact that was not observed has no bit, so it matches no row.
func (t *Table[F, V]) match(fact int, value uint8) (set rowSet) {
	for ; value != 0; value &= value - 1 {
		set = set.or(t.matching[fact][bits.TrailingZeros8(value)])
	}
	return set
}

// decision returns that of the first row in a set of rows that match.
func (t *Table[F, V]) decision(set rowSet) Decision[V] {
	i := set.first()
	if i < 0 {
		return Decision[V]{Verdict: t.otherwise, Rule: Uncovered, Why: "no rule covers the observed facts"}
	}
	r := &t.rows[i]
	return Decision[V]{Verdict: r.Verdict, Rule: r.Name, Why: r.Why, Detail: r.Detail}
}

// Names returns the names of the rows, in order.
func (t *Table[F, V]) Names() []string {
	names := make([]string, len(t.rows))
	for i, r := range t.rows {
		names[i] = r.Name
	}
	return names
}

// Without returns the table without some of its rows. Tests use it to show the harm that these rows prevent.
func (t *Table[F, V]) Without(names ...string) *Table[F, V] {
	return New(t.otherwise, slices.DeleteFunc(slices.Clone(t.rows), func(r Row[F, V]) bool { return slices.Contains(names, r.Name) }))
}

// cellsOf views facts as their cells: a struct of one-byte enums has no padding. With reflection, the enumeration of
// the largest table would take several times longer.
func cellsOf[F any](facts *F) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(facts)), unsafe.Sizeof(*facts))
}

// titleTag is the tag of a field with the title of a fact in a printed table. Without the tag, the title is the name
// of the field.
const titleTag = "fact"

// Conditions lists the facts that a row checks, as "title: values", in the order of the facts.
func Conditions[F any](when F) (conditions []string) {
	facts := reflect.TypeFor[F]()
	all := valuesOf[F]()
	for i, mask := range cellsOf(&when) {
		if mask == 0 || mask == all[i] {
			continue
		}
		field := facts.Field(i)
		title := field.Tag.Get(titleTag)
		if title == "" {
			title = strings.ToLower(field.Name)
		}
		conditions = append(conditions, title+": "+valuesIn(field.Type, mask))
	}
	return conditions
}

// valuesIn returns the names of the values in a mask of a fact.
func valuesIn(fact reflect.Type, mask uint8) string {
	var words []string
	value := reflect.New(fact).Elem()
	for rest := mask; rest != 0; rest &= rest - 1 {
		value.SetUint(uint64(rest & -rest))
		words = append(words, fmt.Sprint(value.Interface()))
	}
	return strings.Join(words, ", ")
}

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

// AnswerOf returns the Answer to a question.
func AnswerOf(yes bool) Answer { return Answer(YesNoOf(yes)) }

// YesNoOf returns the YesNo of a condition.
func YesNoOf(yes bool) YesNo {
	if yes {
		return Yes
	}
	return No
}

// Word returns the name of a value, or nothing if it has none. words are in the order of the bits. The String method
// of each fact type calls it, so that a type has as many values as names.
func Word[T ~uint8 | ~uint16](value T, words ...string) string {
	if i := bits.TrailingZeros16(uint16(value)); i < len(words) && value == 1<<i {
		return words[i]
	}
	return ""
}

// Cases yields each combination of facts that when matches. Every fact has exactly one value. A zero field of when
// takes each value of its type.
func Cases[F any](when F) iter.Seq[F] {
	return func(yield func(F) bool) {
		var facts F
		cells, values := cellsOf(&facts), valuesWithin(when)
		for changed := begin(cells, values); changed >= 0; changed = advance(cells, values) {
			if !yield(facts) {
				return
			}
		}
	}
}

// Decisions yields each of the Cases of when with its decision, as Decide returns it. The rows that match the facts
// before the one that changed are kept, so that the largest table, 212 million cases, takes seconds.
func (t *Table[F, V]) Decisions(when F) iter.Seq2[F, Decision[V]] {
	return func(yield func(F, Decision[V]) bool) {
		var facts F
		cells, values := cellsOf(&facts), valuesWithin(when)
		// sets[i] are the rows that match the first i facts.
		sets := make([]rowSet, len(cells)+1)
		sets[0] = t.everyRow()
		for changed := begin(cells, values); changed >= 0; changed = advance(cells, values) {
			for i := changed; i < len(cells); i++ {
				sets[i+1] = sets[i].and(t.match(i, cells[i]))
			}
			if !yield(facts, t.decision(sets[len(cells)])) {
				return
			}
		}
	}
}

// begin sets each fact to its first value, and returns the first fact.
func begin(cells, values []uint8) int {
	for i, all := range values {
		cells[i] = all & -all
	}
	return 0
}

// advance sets facts to the next combination, and returns the first fact that changed, or -1 after the last
// combination. The last fact changes first. After its last value, it starts again with the first one and carries to
// the fact before it.
func advance(cells, values []uint8) int {
	i := len(cells) - 1
	for ; i >= 0; i-- {
		if above := values[i] &^ (cells[i] | (cells[i] - 1)); above != 0 {
			cells[i] = above & -above
			break
		}
		cells[i] = values[i] & -values[i]
	}
	return i
}

// valuesWithin returns the values of each fact that when matches.
func valuesWithin[F any](when F) []uint8 {
	values := valuesOf[F]()
	for i, mask := range cellsOf(&when) {
		if mask != 0 {
			values[i] &= mask
		}
	}
	return values
}

// valuesOf returns the values of each fact as masks: the bits for which the String method of its type has a name. A
// fact that is not such an enum has none.
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

// NotEnums returns the names of the facts that are not enums of the underlying type uint8 with a String method that
// names each value.
func NotEnums[F any]() (names []string) {
	values := valuesOf[F]()
	for i := range values {
		if values[i] == 0 {
			names = append(names, reflect.TypeFor[F]().Field(i).Name)
		}
	}
	return names
}
