package states

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// exact are the numbers that are the same in each run.
var exact = []string{"replicas", "readyMembers", "quotaBytes"}

// fixed are texts that differ from run to run, and what replaces them.
var fixed = map[string]string{"node": "<node>", "zone": "<zone>"}

// timed are what is known only after some time, or while a backup is late.
var timed = []string{"disk", "fsyncP99Seconds", "unsavedSeconds"}

var (
	// joined is the rule by which a member started: see racy.
	joined = regexp.MustCompile(`^(first-boot|(finish-)?join|resume[a-z-]*)$`)
	// watched is an error of backups that the agent of a former leader can report: see racy.
	watched = regexp.MustCompile(`^watch etcd\b`)
)

// Data returns JSON that kubectl druid printed without what differs from run to run. Its keys are sorted, and so are members.
func Data(text string, names Names) (string, error) {
	var data any
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		return "", fmt.Errorf("read the data: %w", err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(steadyData("", data, names)); err != nil {
		return "", fmt.Errorf("print the data: %w", err)
	}
	return out.String(), nil
}

func steadyData(key string, value any, names Names) any {
	switch value := value.(type) {
	case string:
		return steadyText(key, value, names)
	case float64:
		if !slices.Contains(exact, key) {
			return "<n>"
		}
	case []any:
		if key == "events" {
			return events
		}
		for i := range value {
			value[i] = steadyData(key, value[i], names)
		}
		if key == "members" {
			slices.SortFunc(value, func(a, b any) int { return bytes.Compare(marshalled(a), marshalled(b)) })
		}
	case map[string]any:
		// An agent can end before it reports its last role.
		if value["renewed"] == false && value["role"] != nil {
			value["role"] = "<role>"
		}
		if text, _ := value["error"].(string); watched.MatchString(text) {
			delete(value, "error")
			delete(value, "cause")
		}
		for key, one := range value {
			value[key] = steadyData(key, one, names)
		}
		for _, key := range timed {
			delete(value, key)
		}
	default:
	}
	return value
}

func steadyText(key, text string, names Names) string {
	switch {
	case fixed[key] != "":
		return fixed[key]
	case key == "rule" && joined.MatchString(text):
		return "<join or resume>"
	default:
		return Steady(text, names)
	}
}

// marshalled is a value that came from JSON.
func marshalled(value any) []byte {
	raw, _ := json.Marshal(value)
	return raw
}
