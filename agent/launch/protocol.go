package launch

import (
	"fmt"
	"time"
)

// ProtocolVersion of this build. Either side serves its own version and the ones directly before and after it: a running
// launch survives upgrades of the agent, and is itself replaced only with its Pod.
const ProtocolVersion = 1

// The protocol is newline-delimited JSON over a unix socket in the emptyDir that agent and etcd share. launch dials, says
// what it is doing, and keeps the connection for as long as both live; the agent answers with orders. If the agent is
// gone, etcd runs on and launch dials again. Unknown fields are ignored, unknown states and kinds change nothing.

// State of launch, as it reports it.
type State string

const (
	// StateIdle: no etcd runs; launch holds the volume's lock, whose descriptor travels with this report (SCM_RIGHTS), and
	// asks what to do. The agent may look at and change the volume only while it holds that descriptor.
	StateIdle State = "idle"
	// StateRunning: etcd runs as PID.
	StateRunning State = "running"
	// StateBlocked: another process holds the volume's lock; Error says so. launch keeps trying.
	StateBlocked State = "blocked"
	// StateUnusable: the volume is missing, read-only or not ours to write; Error says which and what to do about it.
	// launch keeps trying.
	StateUnusable State = "unusable"
	// StateStopping: launch was instructed to end (SIGTERM); it waits for OrderProceed for at most StopGrace, then stops etcd.
	StateStopping State = "stopping"
)

// StopGrace bounds how long launch waits for the agent to move leadership before it stops etcd (design.md §4: 5 s).
const StopGrace = 5 * time.Second

// Report is what launch says.
type Report struct {
	Version int   `json:"version"`
	State   State `json:"state"`
	PID     int   `json:"pid,omitempty"`
	// Lock says that the volume's lock travels with this report.
	Lock bool `json:"lock,omitempty"`
	// LastExit is how the former etcd of this launch ended, nil if there was none.
	LastExit *Exit `json:"lastExit,omitempty"`
	// Clean says that the last etcd on this volume, of whatever Pod, ended with code 0 or by our SIGTERM, as the marker on
	// the volume shows. Without a marker it is false.
	Clean bool `json:"clean,omitempty"`
	// Crashes counts the exits in a row that were not clean, as far as the marker knows.
	Crashes int    `json:"crashes,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Exit is how an etcd process ended. Code is −1 where a signal ended it or where it could not be started.
type Exit struct {
	Code    int           `json:"code"`
	Signal  string        `json:"signal,omitempty"`
	RanFor  time.Duration `json:"ranFor"` // nanoseconds
	Message string        `json:"message,omitempty"`
}

// OrderKind is what the agent informs launch to do.
type OrderKind string

const (
	// OrderStart: run Path with Argv (Argv[0] included) and Env, and nothing else.
	OrderStart OrderKind = "start"
	// OrderWait: stay idle; Reason reports why. The probe port answers alive but not ready meanwhile.
	OrderWait OrderKind = "wait"
	// OrderStop: stop etcd (SIGTERM, after Grace SIGKILL), then report StateIdle.
	OrderStop OrderKind = "stop"
	// OrderProceed: the answer to StateStopping.
	OrderProceed OrderKind = "proceed"
)

// Order is what the agent says.
type Order struct {
	Version int           `json:"version"`
	Kind    OrderKind     `json:"kind"`
	Path    string        `json:"path,omitempty"`
	Argv    []string      `json:"argv,omitempty"`
	Env     []string      `json:"env,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"` // nanoseconds
	Reason  string        `json:"reason,omitempty"`
}

// VersionError says that the two sides are too far apart to understand each other.
type VersionError struct{ Theirs int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("protocol version %d is not served by version %d: delete the Pod, so that its launch and its agent are of one release",
		e.Theirs, ProtocolVersion)
}

func checkVersion(theirs int) error {
	if theirs < ProtocolVersion-1 || theirs > ProtocolVersion+1 || theirs < 1 {
		return &VersionError{Theirs: theirs}
	}
	return nil
}
