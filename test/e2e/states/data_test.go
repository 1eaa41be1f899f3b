package states

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSteadyDataOfTwoRuns: data of the same state in two runs becomes the same text.
func TestSteadyDataOfTwoRuns(t *testing.T) {
	const want = `[
  {
    "backup": {
      "savedAt": "<time>",
      "savedRevision": "<n>"
    },
    "events": "<Events>",
    "members": [
      {
        "id": "<id>",
        "message": "waits for <leader>",
        "name": "<follower>",
        "node": "<node>",
        "renewed": false,
        "role": "<role>",
        "rule": "<join or resume>"
      },
      {
        "name": "<leader>",
        "renewed": true,
        "role": "Leader",
        "zone": "<zone>"
      }
    ],
    "readyMembers": 3,
    "replicas": 3,
    "rule": "serving"
  }
]
`
	for run, c := range map[string]struct {
		text  string
		names Names
	}{
		"first": {`[{"replicas": 3, "readyMembers": 3, "rule": "serving", "backup": {"savedRevision": 7, "savedAt": "2026-11-24T02:56:00Z", "unsavedSeconds": 1.5},
			"members": [{"name": "a-11111", "role": "Leader", "renewed": true, "zone": "z1", "disk": "OK", "fsyncP99Seconds": 0.004},
				{"name": "a-22222", "role": "Member", "renewed": false, "node": "n2", "rule": "resume-majority", "id": "a98359f6f7ec8af8",
					"message": "waits for a-11111"}], "events": [{"reason": "Joined"}]}]`,
			Names{"a-11111": "<leader>", "a-22222": "<follower>"}},
		"second": {`[{"replicas": 3, "readyMembers": 3, "rule": "serving", "backup": {"error": "watch etcd: rpc error", "cause": "Unknown",
			"savedRevision": 48211, "savedAt": "2026-11-25T02:56:00Z"},
			"members": [{"name": "a-44444", "role": "Leader", "renewed": false, "node": "n3", "rule": "join", "id": "661ba0a2080d4f34",
				"message": "waits for a-99999"}, {"name": "a-99999", "role": "Leader", "renewed": true, "zone": "z3"}], "events": []}]`,
			Names{"a-99999": "<leader>", "a-44444": "<follower>"}},
	} {
		got, err := Data(c.text, c.names)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the %s run (-want +got):\n%s", run, diff)
		}
	}
	if _, err := Data("no data", nil); err == nil {
		t.Error("what is no JSON is data")
	}
}
