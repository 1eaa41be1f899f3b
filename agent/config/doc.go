// Package config owns the agent's flags and its hot-reloadable configuration file: what druid renders into a Pod and a
// ConfigMap, and what the agent reads there. It is a leaf that both sides link; it must never import either of them.
package config
