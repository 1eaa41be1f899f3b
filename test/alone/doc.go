// Package alone is cmd/agent for tests without a kubelet: the agent in a process of its own, which is reported where Kubernetes and the other
// members are. It links what cmd/agent links, so that its memory is that of the real one.
package alone
