// Package alone is cmd/agent for tests without a kubelet: the agent in a process of its own, with the addresses of Kubernetes and of the
// other members as arguments. It links what cmd/agent links, so that its memory is that of the real one.
package alone
