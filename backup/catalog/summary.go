package catalog

// Summary is what a store holds of one lineage. `agent backup list` prints it as JSON, and the kubectl plugin reads that.
type Summary struct {
	Lineage Lineage `json:"lineage"`
	// Formation is the record of the lineage, and FormationProblem what is wrong with it. nil and empty if there is none.
	Formation        *Formation `json:"formation,omitempty"`
	FormationProblem string     `json:"formationProblem,omitempty"`
	// Fulls, Deltas and Finals count objects. Finals are full backups that retention never deletes.
	Fulls  int `json:"fulls"`
	Deltas int `json:"deltas"`
	Finals int `json:"finals,omitempty"`
	// Size of all its objects in bytes.
	Size int64 `json:"size"`
	// Restorable are the ranges of revisions without a gap, and Gaps what is between them.
	Restorable []Range `json:"restorable"`
	Gaps       []Gap   `json:"gaps,omitempty"`
	// UnknownObjects are keys in the lineage that are no backups.
	UnknownObjects []string `json:"unknownObjects,omitempty"`
}

// Parent returns the lineage from which this one forked. It is empty if there is none, or if it is not known.
func (s Summary) Parent() Lineage {
	if s.Formation == nil {
		return ""
	}
	return s.Formation.Parent
}

// Summary returns what the store holds of the lineage.
func (h History) Summary() Summary {
	s := Summary{
		Lineage: h.Lineage, Formation: h.Formation, FormationProblem: h.BootstrapProblem, Fulls: len(h.Fulls), Deltas: len(h.Deltas),
		Restorable: h.Ranges(), Gaps: h.Gaps(), UnknownObjects: h.UnknownObjects,
	}
	for _, f := range h.Fulls {
		s.Size += f.Size
		if f.Final {
			s.Finals++
		}
	}
	for _, d := range h.Deltas {
		s.Size += d.Size
	}
	return s
}
