package policy

import "github.com/etcd-druid/druid/internal/rules"

// Evaluation is what the policies say of a cluster. Each policy decides once per pass. The adoption of a spec, the steps, the status and
// the messages follow from the same Evaluation.
type Evaluation struct {
	Desired
	Observed

	// Finalizer is the decision about the finalizer of the EtcdCluster.
	Finalizer rules.Decision[Finalizer]

	// listed are the members that the record lists.
	listed    []Member
	evidence  evidence
	backups   backups
	pause     pauseState
	scaleDown scaleDown
	externals externals
	upgrade   upgrade
	rollout   rollout
	replace   replace
	update    update
	// rotations are the decisions about the certificate authorities, by plane.
	rotations map[string]rotation
	recovery  recovery
	restore   restore
	// problems are the observed problems and those that follow from the cluster.
	problems []Problem
}

// Evaluate decides every policy once, each after those that it depends on. The observation must be complete.
func Evaluate(d Desired, o Observed) Evaluation {
	e := Evaluation{
		Desired: d, Observed: o, listed: o.listed(),
		evidence: evidenceOf(d, o), backups: backupsOf(d, o), externals: externalsOf(d, o), upgrade: upgradeOf(d, o),
	}
	e.Finalizer = finalizerOf(d, o, e.evidence)
	e.pause = pauseStateOf(d, o, e.evidence, e.backups)
	e.scaleDown = scaleDownOf(e)
	e.rollout = rolloutOf(e)
	e.replace = replaceOf(e)
	e.update = updateOf(e)
	e.rotations = map[string]rotation{}
	for _, c := range o.Certificates {
		e.rotations[c.Plane] = rotationOf(c, e)
	}
	e.recovery = recoveryOf(d, o, e.listed)
	e.restore = restoreOf(d, o, e.listed)
	e.problems = problemsOf(e)
	return e
}

// handsOff says that druid must not act for the cluster. A deletion continues, because Kubernetes deletes the objects in any case.
func (e Evaluation) handsOff() bool { return e.HandsOff != "" && !e.Deleted }
