package membership

// Decision of a table names the rule too.
type Decision[V any] struct {
	Verdict V
	Rule    string
	// Reason in words for a person: of what waits, and of what is left alone although something is wrong.
	Reason string
}

// row of a table: what is done when the facts are so, and why. A zero fact of when holds every value.
type row[F, V any] struct {
	name    string
	when    F
	verdict V
	why     string
}

// decision of the row, which says why if told.
func (r *row[F, V]) decision(told bool) Decision[V] {
	d := Decision[V]{Verdict: r.verdict, Rule: r.name}
	if told {
		d.Reason = r.why
	}
	return d
}
