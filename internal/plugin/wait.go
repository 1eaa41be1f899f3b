package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
)

const (
	// waitTimeout is how long --wait waits for druid. A new member gets its data first, and members change one at a time.
	waitTimeout = time.Hour
	// waitPoll is the pause between two looks.
	waitPoll = time.Second
)

// waiting are the flags of a command that can wait for the end of what it requests.
type waiting struct {
	wait    bool
	timeout time.Duration
}

// bind adds the flags. until says what the command waits for.
func (w *waiting) bind(cmd *cobra.Command, until string) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "show the progress, and wait until "+until)
	cmd.Flags().DurationVar(&w.timeout, "timeout", w.timeout, "how long to wait")
}

// waitState is how far an operation is, at one look. An error ends it too.
type waitState struct {
	text  string
	ended bool
	err   error
}

// needs refuses --wait without the flag that requests something.
func (w waiting) needs(cmd *cobra.Command, flag string) error {
	if w.wait && !cmd.Flags().Changed(flag) {
		return fmt.Errorf("--wait needs --%s, which requests something to wait for", flag)
	}
	return nil
}

// await prints each change of the state until the end. An interrupt ends the command, and not what it waits for. again is a command that
// shows the progress later.
func (w waiting) await(cmd *cobra.Command, p *page, what, again string, look func(ctx context.Context) (waitState, error)) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
	defer cancel()
	progress := cli.NewProgress(cmd.ErrOrStderr())
	return progress.During(what, func() error {
		last := ""
		for poll := time.Tick(waitPoll); ; {
			now, err := look(ctx)
			switch {
			case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
				return err
			case err == nil && now.err != nil:
				return errors.Join(now.err, p.err)
			case err == nil:
				if now.text != "" && now.text != last {
					last = now.text
					progress.Apart(func() { p.line(cell{text: now.text}) })
				}
				if now.ended {
					return p.err
				}
			}
			select {
			case <-poll:
			case <-ctx.Done():
				if err == nil || errors.Is(err, context.DeadlineExceeded) {
					err = fmt.Errorf("it has not ended. It continues without this command: %s", again)
				}
				return fmt.Errorf("wait for %s: %w", what, err)
			}
		}
	})
}

// awaitCluster is await for what druid does to an EtcdCluster. Without --wait it does nothing.
func (w waiting) awaitCluster(cmd *cobra.Command, k *kube, p *page, c v1alpha1.EtcdCluster, what, verb string,
	stateOf func(v1alpha1.EtcdCluster) waitState) error {
	if !w.wait || p.err != nil {
		return p.err
	}
	what = fmt.Sprintf("%s of EtcdCluster %s/%s", what, c.Namespace, c.Name)
	return w.await(cmd, p, what, k.invoke(c, verb), func(ctx context.Context) (waitState, error) {
		now, err := k.cluster(ctx, c.Name)
		switch {
		case err != nil:
			return waitState{}, err
		case now.UID != c.UID || now.DeletionTimestamp != nil:
			return waitState{err: fmt.Errorf("wait for %s: the EtcdCluster was deleted", what)}, nil
		}
		s := stateOf(now)
		if s.err != nil {
			s.err = fmt.Errorf("%s: %w", what, s.err)
		}
		return s, nil
	})
}

// changeState is the state of a change that druid makes: what it does or waits for. The message of a cluster that matches its spec says nothing
// about a change that has not begun.
func changeState(c v1alpha1.EtcdCluster) waitState {
	progressing := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionProgressing)
	switch {
	case progressing == nil || progressing.Reason == v1alpha1.ReasonReconciled:
		return waitState{}
	case progressing.Reason == v1alpha1.ReasonDeadlineExceeded && c.Status.ObservedGeneration < c.Generation:
		return waitState{text: "druid has not read the change yet."} // the condition is about an earlier one
	case progressing.Reason == v1alpha1.ReasonDeadlineExceeded:
		return waitState{err: fmt.Errorf("druid stopped: %s", progressing.Message)}
	default:
		return waitState{text: sentence(progressing.Message)}
	}
}

// replaceState is the state of the replacement of a member.
func replaceState(c v1alpha1.EtcdCluster, member string) waitState {
	switch {
	case !slices.Contains(memberNames(c), member):
		return waitState{text: "Member " + member + " has left.", ended: true}
	case c.Annotations[v1alpha1.ReplaceAnnotation] != member:
		return waitState{err: errors.New("the request was withdrawn, and the member is still there")}
	case c.Spec.Replicas == 0:
		return waitState{err: errors.New("the EtcdCluster is paused, and no member is replaced before you resume it")}
	default:
		return changeState(c)
	}
}

// upgradeState is the state of a change of the version.
func upgradeState(c v1alpha1.EtcdCluster, to string) waitState {
	if c.Spec.Version != to {
		return waitState{err: fmt.Errorf("spec.version is %s now", or(c.Spec.Version))}
	}
	s := changeState(c)
	done := len(c.Status.Members) > 0 && s == waitState{} && c.Status.ObservedGeneration == c.Generation &&
		!slices.ContainsFunc(c.Status.Members, func(m v1alpha1.MemberStatus) bool { return m.Version != to })
	if done {
		return waitState{text: "All members run etcd " + to + ".", ended: true}
	}
	return s
}

// recoverState is the state of a recovery or of a restore in place that was approved in the raft group of an epoch.
func recoverState(c v1alpha1.EtcdCluster, epoch int64, hash string) waitState {
	r := c.Status.Recovery
	switch {
	case c.Status.Epoch > epoch && (r == nil || r.Phase == v1alpha1.RecoveryRecovered || r.Plan == nil):
		return waitState{text: "The cluster was formed again.", ended: true}
	case r == nil || r.Phase == v1alpha1.RecoveryRecovered:
		return waitState{err: errors.New("there is no plan any more. The quorum returned, or the restore was withdrawn")}
	case r.Phase == v1alpha1.RecoveryRefused:
		return waitState{err: fmt.Errorf("druid refuses: %s", r.Message)}
	case r.Phase == v1alpha1.RecoveryProposed && r.Plan != nil && r.Plan.Hash != hash:
		return waitState{err: fmt.Errorf("druid has another plan now, with the hash %s. Read it before you approve it", r.Plan.Hash)}
	case r.Phase == v1alpha1.RecoveryProposed && c.Annotations[v1alpha1.RecoverAnnotation] == hash:
		return waitState{} // druid has not seen the approval yet
	default:
		return waitState{text: string(r.Phase) + ": " + sentence(r.Message)}
	}
}

// awaitRecovery waits until a plan was carried out.
func (w waiting) awaitRecovery(cmd *cobra.Command, k *kube, p *page, c v1alpha1.EtcdCluster, hash string) error {
	return w.awaitCluster(cmd, k, p, c, "plan "+hash, "recover", func(now v1alpha1.EtcdCluster) waitState { return recoverState(now, c.Status.Epoch, hash) })
}
