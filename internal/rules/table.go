package rules

import (
	"slices"
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
}

// Decision is the verdict of the row that won.
type Decision[V any] struct {
	Verdict V
	// Rule is the name of the row, or Uncovered.
	Rule string
	// Why is that of the row.
	Why string
}

// Table is an ordered list of rows. Its methods can be called concurrently.
type Table[F, V any] struct {
	rows      []Row[F, V]
	cells     [][]uint8
	otherwise V
}

// New makes a table. The first row that matches decides. otherwise is the verdict where none does; rulestest.Check proves that this never
// happens, and that each fact is an enum.
func New[F, V any](otherwise V, rows []Row[F, V]) *Table[F, V] {
	t := &Table[F, V]{rows: rows, cells: make([][]uint8, len(rows)), otherwise: otherwise}
	for i := range rows {
		t.cells[i] = slices.Clone(cellsOf(&rows[i].When))
		for j, mask := range t.cells[i] {
			if mask == 0 {
				t.cells[i][j] = ^mask
			}
		}
	}
	return t
}

// Rows of the table, in order. They must not be changed.
func (t *Table[F, V]) Rows() []Row[F, V] { return t.rows }

// Decide returns the verdict of the first row that matches the facts. It depends on nothing else.
func (t *Table[F, V]) Decide(facts F) Decision[V] {
	if i := t.find(&facts); i >= 0 {
		r := &t.rows[i]
		return Decision[V]{Verdict: r.Verdict, Rule: r.Name, Why: r.Why}
	}
	return Decision[V]{Verdict: t.otherwise, Rule: Uncovered, Why: "no rule covers what was observed"}
}

func (t *Table[F, V]) find(facts *F) int {
	values := cellsOf(facts)
next:
	for i, row := range t.cells {
		for j, mask := range row {
			if values[j]&mask == 0 {
				continue next
			}
		}
		return i
	}
	return -1
}

// Names of the rows, in their order.
func (t *Table[F, V]) Names() []string {
	names := make([]string, len(t.rows))
	for i, r := range t.rows {
		names[i] = r.Name
	}
	return names
}

// Without is the table without some of its rows. A test shows by it which harm they prevent.
func (t *Table[F, V]) Without(names ...string) *Table[F, V] {
	return New(t.otherwise, slices.DeleteFunc(slices.Clone(t.rows), func(r Row[F, V]) bool { return slices.Contains(names, r.Name) }))
}

// cellsOf views facts as their cells: a struct of enums of one byte has no padding. Reflection would make the enumeration of the largest
// table, 46 million facts, several times slower.
func cellsOf[F any](facts *F) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(facts)), unsafe.Sizeof(*facts))
}
