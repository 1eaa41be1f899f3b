package chain

import "slices"

// descent is a line of descent: the lineages that one cluster has and had, with what they forked from.
type descent map[Lineage]bool

// descents is the line of l. Without l it is each line that is no part of another one.
func (c Catalog) descents(l Lineage) []descent {
	if l != "" {
		return []descent{c.descent(l)}
	}
	var lines []descent
	for _, h := range c.Histories {
		line := c.descent(h.Lineage)
		if slices.ContainsFunc(lines, line.within) {
			continue
		}
		lines = append(slices.DeleteFunc(lines, func(old descent) bool { return old.within(line) }), line)
	}
	return lines
}

// descent is the line of l: empty where l is not there, l alone where the record of its bootstrap cannot be read.
func (c Catalog) descent(l Lineage) descent {
	line := descent{}
	self, found := c.History(l)
	if !found {
		return line
	}
	for _, h := range c.Histories {
		if h.Lineage != l && !sameCluster(h, self) {
			continue
		}
		for _, s := range c.line(h) {
			line[s.history.Lineage] = true
		}
	}
	return line
}

func sameCluster(a, b History) bool {
	return a.Formation != nil && b.Formation != nil && a.Formation.ClusterUID != "" && a.Formation.ClusterUID == b.Formation.ClusterUID
}

func (d descent) within(other descent) bool {
	for l := range d {
		if !other[l] {
			return false
		}
	}
	return true
}
