package policy

// handsOff says that druid must not act for the cluster. A deletion continues, because Kubernetes deletes the objects in any case.
func (e Evaluation) handsOff() bool { return e.HandsOff != "" && !e.Deleted }
