package membership

import (
	"errors"
	"testing"
)

func TestBriefLeavesOutConnections(t *testing.T) {
	const refused = `status of https://etcd-a.etcd:2379: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: `
	for text, want := range map[string]string{
		refused + `dial tcp 10.1.2.3:2379: connect: connection refused"`:                refused + `dial tcp: connect: connection refused"`,
		refused + `dial tcp [fd00::12]:2379: connect: connection refused"`:              refused + `dial tcp: connect: connection refused"`,
		"read tcp 10.1.2.3:41234->10.1.2.4:2379: read: connection reset":                "read tcp: read: connection reset",
		"lookup etcd-a on 10.0.0.10:53: read udp 10.1.2.3:1->10.0.0.10:53: i/o timeout": "lookup etcd-a on 10.0.0.10:53: read udp: i/o timeout",
		"status of https://etcd-a.etcd:2379: context deadline exceeded":                 "status of https://etcd-a.etcd:2379: context deadline exceeded",
		"dial tcp: lookup etcd-a.etcd on 10.0.0.10:53: no such host":                    "dial tcp: lookup etcd-a.etcd on 10.0.0.10:53: no such host",
	} {
		if got := Brief(errors.New(text)); got != want {
			t.Errorf("%q is reported as %q, want %q", text, got, want)
		}
	}
}
