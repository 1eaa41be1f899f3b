package view

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxEvents is how many Events are shown. They fit on one screen with the conditions.
const maxEvents = 10

// Event is an Event of the EtcdCluster.
type Event struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// eventsOf returns the newest Events.
func eventsOf(events []corev1.Event) (all []Event) {
	for _, e := range events {
		all = append(all, Event{At: lastSeen(e), Type: e.Type, Reason: e.Reason, Message: e.Message})
	}
	slices.SortStableFunc(all, func(a, b Event) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxEvents)]
}

// lastSeen is when an Event was last emitted. Which field has it depends on the API with which it was created.
func lastSeen(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}
