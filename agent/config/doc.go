// Package config owns the agent's flags and its configuration file: what druid renders into a Pod and a ConfigMap,
// and what the agent reads. Both sides link this leaf. It must never import either of them.
package config
