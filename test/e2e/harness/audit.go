package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Requests are the API requests that one service account made, as the API server's audit log has them.
type Requests []auditv1.Event

// Since reads from the audit log the requests of a service account, or of all when name is empty, that began after a
// moment. The log is of this machine, as the clock is.
func (r *Rig) Since(t testing.TB, begun time.Time, namespace, name string) Requests {
	t.Helper()
	file, err := os.Open(r.auditLog)
	if err != nil {
		t.Fatalf("open the audit log: %v", err)
	}
	defer file.Close()
	user := "system:serviceaccount:" + namespace + ":" + name
	var found Requests
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line, still being written
		}
		if e.RequestReceivedTimestamp.After(begun) && strings.HasPrefix(e.User.Username, user) {
			found = append(found, e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("read the audit log: %v", err)
	}
	return found
}

// In keeps the requests for objects of a namespace.
func (r Requests) In(namespace string) Requests {
	return slices.DeleteFunc(slices.Clone(r), func(e auditv1.Event) bool {
		return e.ObjectRef == nil || e.ObjectRef.Namespace != namespace
	})
}

// Writes keeps the requests that change something.
func (r Requests) Writes() Requests {
	return slices.DeleteFunc(slices.Clone(r), func(e auditv1.Event) bool {
		return slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
}

// String lists what was asked, one request a line.
func (r Requests) String() string {
	var b strings.Builder
	for _, e := range r {
		fmt.Fprintf(&b, "%s %s %s %s\n", e.RequestReceivedTimestamp.Format(time.TimeOnly), e.User.Username, e.Verb, e.RequestURI)
	}
	return b.String()
}
