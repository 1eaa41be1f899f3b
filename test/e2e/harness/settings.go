package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Settings are what a member's etcd says, in the log line of its start, that it runs with.
func (c *Cluster) Settings(t testing.TB, member string) map[string]any {
	t.Helper()
	var settings map[string]any
	Eventually(t, maxWait, "the settings of "+member+" in its log", func(ctx context.Context) (err error) {
		settings, err = c.settings(ctx, member)
		return err
	})
	return settings
}

func (c *Cluster) settings(ctx context.Context, member string) (map[string]any, error) {
	stream, err := c.Rig.Kube.CoreV1().Pods(c.Namespace).
		GetLogs(member, &corev1.PodLogOptions{Container: ContainerEtcd}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", member, err)
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line["msg"] == "starting an etcd server" {
			return line, nil
		}
	}
	return nil, errors.Join(errors.New("etcd's log has no line of its start"), lines.Err())
}
