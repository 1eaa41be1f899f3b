package druid

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The environment variables that name the Pod of druid. The Deployment sets them by the downward API.
const (
	variablePodNamespace = "POD_NAMESPACE"
	variablePodName      = "POD_NAME"
)

// ownContainer is the container of druid in its Pod.
const ownContainer = "druid"

// ownImageTimeout bounds the only request before druid starts: the kubelet restarts a druid that cannot reach the API server.
const ownImageTimeout = 30 * time.Second

// readImage sets the image of the agents to that of druid's own Pod, which also contains the agent. So a tool that changes the image of
// the Deployment, or a webhook that changes that of its Pods, changes that of the agents too.
func (o *Options) readImage(ctx context.Context, reader client.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, ownImageTimeout)
	defer cancel()
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, o.Pod, pod); err != nil {
		return fmt.Errorf("read the image of the agents from Pod %s of druid: %w; permit druid to get it, or set --agent-image", o.Pod, err)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == ownContainer {
			o.AgentImage = c.Image
			return nil
		}
	}
	return fmt.Errorf("read the image of the agents from Pod %s of druid: it has no container %s; set --agent-image", o.Pod, ownContainer)
}
