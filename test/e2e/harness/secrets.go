package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
)

// decoy is the Secret whose content a ConfigMap of the same name shows, so that each search has something to find.
const decoy = "decoy-of-the-search"

// shortestSecret is the least that is searched for. A shorter word occurs by chance.
const shortestSecret = 8

// secrets are words that nothing shows, by where they come from.
type secrets map[string]string

// texts are what the system wrote, by where.
type texts map[string]string

// ShowsNoSecret fails the test if a value of a Secret in the namespace of the cluster, a token of a Pod, or one of more is in anything
// else that the system wrote: objects, Events, logs, metrics, and the arguments and the environment of processes. It must find at least
// the values named in want, as Secret/key.
func (c *Cluster) ShowsNoSecret(t testing.TB, more map[string]string, want ...string) {
	t.Helper()
	ctx := t.Context()
	c.plantDecoy(t)
	all, written := secrets{}, texts{}
	maps.Copy(all, more)
	errs := []error{c.secretsInto(ctx, all)}
	for _, namespace := range []string{c.Namespace, DruidNamespace} {
		errs = append(errs, c.Rig.objectsInto(ctx, written, namespace), c.Rig.podsInto(ctx, all, written, namespace))
	}
	for _, member := range c.MemberNames(t) {
		for path, port := range map[string]int{"/metrics": config.MetricsPort, "/metrics of the agent": config.AgentPort, "/v1/status": config.AgentPort} {
			page, err := c.page(ctx, member, port, strings.TrimSuffix(path, " of the agent"))
			written[path+" of "+member] = page
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("not everything was searched: %v", err)
	}
	c.wereFound(t, all, want)
	found := shown(all, written)
	own := fmt.Sprintf("Secret %s/word is in ConfigMap %s/%s", decoy, c.Namespace, decoy)
	if !slices.Contains(found, own) {
		t.Errorf("the search does not find what ConfigMap %s shows", decoy)
	}
	for _, leak := range found {
		if leak != own {
			t.Error(leak)
		}
	}
	t.Logf("searched %d texts for %d secrets", len(written), len(all))
}

// NoSecretIn fails the test if a value of a Secret in the namespace of the cluster, a token of a Pod, or one of more is in a text. It must
// find at least the values named in want, as Secret/key. public is a word that no text hides, so that the search has something to find.
func (c *Cluster) NoSecretIn(t testing.TB, written, more map[string]string, public string, want ...string) {
	t.Helper()
	const known = "the public word"
	ctx, all := t.Context(), secrets{known: public}
	maps.Copy(all, more)
	errs := []error{c.secretsInto(ctx, all)}
	for _, namespace := range []string{c.Namespace, DruidNamespace} {
		errs = append(errs, c.Rig.podsInto(ctx, all, texts{}, namespace))
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("not every secret was read: %v", err)
	}
	c.wereFound(t, all, want)
	found := shown(all, written)
	leaks := slices.DeleteFunc(slices.Clone(found), func(leak string) bool { return strings.HasPrefix(leak, known+" is in ") })
	if len(leaks) == len(found) {
		t.Errorf("the search does not find the word %s", public)
	}
	for _, leak := range leaks {
		t.Error(leak)
	}
	t.Logf("searched %d texts for %d secrets", len(written), len(all))
}

// wereFound fails the test unless the values named in want, as Secret/key, and the tokens of the agents are known.
func (c *Cluster) wereFound(t testing.TB, all secrets, want []string) {
	t.Helper()
	for _, name := range want {
		if all["Secret "+name] == "" {
			t.Errorf("Secret %s has no value to search for", name)
		}
	}
	for _, member := range c.MemberNames(t) {
		if all[tokenOf+member] == "" {
			t.Errorf("the token of the agent of %s was not found", member)
		}
	}
}

// shown returns which secrets are in which texts: as they are, in base64, or as JSON and URLs write them. It does not return the secrets.
func shown(all secrets, written texts) (found []string) {
	for name, word := range all {
		quoted, _ := json.Marshal(word) // a string is always JSON
		forms := []string{
			word, base64.StdEncoding.EncodeToString([]byte(word)), base64.URLEncoding.EncodeToString([]byte(word)),
			strings.Trim(string(quoted), `"`), url.QueryEscape(word),
		}
		for where, text := range written {
			if slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(text, form) }) {
				found = append(found, name+" is in "+where)
			}
		}
	}
	slices.Sort(found)
	return found
}

// plantDecoy makes a Secret, and a ConfigMap that shows it as a careless program would.
func (c *Cluster) plantDecoy(t testing.TB) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: decoy}
	word := []byte("decoy-" + c.Namespace)
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"word": word}},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"shows": "word: " + base64.StdEncoding.EncodeToString(word)}},
	} {
		if err := c.Rig.Client.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
}

// public reports whether a value of a Secret may be shown.
func public(key string, value []byte) bool {
	return len(value) < shortestSecret || slices.Contains([]string{"endpoints", "accessKeyID", "current"}, key) ||
		bytes.Contains(value, []byte("BEGIN CERTIFICATE")) && !bytes.Contains(value, []byte("PRIVATE KEY"))
}

func (c *Cluster) secretsInto(ctx context.Context, all secrets) error {
	var list corev1.SecretList
	if err := c.Rig.Client.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list Secrets of %s: %w", c.Namespace, err)
	}
	for _, secret := range list.Items {
		for key, value := range secret.Data {
			if public(key, value) {
				continue
			}
			name, word := "Secret "+secret.Name+"/"+key, strings.TrimSpace(string(value))
			all[name] = word
			// A line of a file with several is secret by itself.
			for i, line := range strings.Split(word, "\n") {
				if len(line) >= 2*shortestSecret && !strings.HasPrefix(line, "-----") && !strings.HasPrefix(line, "#") && line != word {
					all[fmt.Sprintf("%s line %d", name, i+1)] = line
				}
			}
		}
	}
	return nil
}

// objectsInto adds all objects of a namespace except Secrets, of each kind that the API server lists.
func (r *Rig) objectsInto(ctx context.Context, written texts, namespace string) error {
	kinds, err := r.Kube.Discovery().ServerPreferredNamespacedResources()
	errs := []error{err}
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		errs = append(errs, err)
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || kind.Kind == "Secret" {
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(version.WithKind(kind.Kind))
			err := r.Client.List(ctx, list, client.InNamespace(namespace))
			if err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("list %s of %s: %w", kind.Name, namespace, err))
			}
			for _, object := range list.Items {
				raw, err := json.Marshal(object.Object)
				written[fmt.Sprintf("%s %s/%s", kind.Kind, namespace, object.GetName())] = string(raw)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// podsInto adds what the Pods of a namespace write, and their tokens as secrets.
func (r *Rig) podsInto(ctx context.Context, all secrets, written texts, namespace string) error {
	var pods corev1.PodList
	errs := []error{r.Client.List(ctx, &pods, client.InNamespace(namespace))}
	for _, pod := range pods.Items {
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			for _, previous := range []bool{false, true} {
				if previous && status.RestartCount == 0 {
					continue
				}
				text, err := r.fullLog(ctx, &pod, status.Name, previous)
				written[fmt.Sprintf("the log of %s/%s (previous %t)", pod.Name, status.Name, previous)] = text
				errs = append(errs, err)
			}
		}
		errs = append(errs, processesInto(all, written, &pod))
		if namespace == DruidNamespace && pod.Status.PodIP != "" {
			page, err := r.druidMetrics(ctx, &pod)
			written["/metrics of "+pod.Name] = page
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// fullLog is the log of a container, also if its Pod ends meanwhile.
func (r *Rig) fullLog(ctx context.Context, pod *corev1.Pod, container string, previous bool) (string, error) {
	options := &corev1.PodLogOptions{Container: container, Previous: previous}
	stream, err := r.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if apierrors.IsNotFound(err) || previous && apierrors.IsBadRequest(err) { // the Pod is gone, or the kubelet has deleted the old log
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("log of %s/%s: %w", pod.Name, container, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}

// tokenOf is the name of the secret that is a token, before the name of its Pod.
const tokenOf = "the signature of the token of "

// tokenFile is where a container has the token of its ServiceAccount.
const tokenFile = "var/run/secrets/kubernetes.io/serviceaccount/token"

// processesInto adds the arguments and the environment of the processes of a Pod, and the token that they read. A Pod that runs has some.
func processesInto(all secrets, written texts, pod *corev1.Pod) error {
	directories, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	read := 0
	for _, dir := range directories {
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(group), string(pod.UID)) {
			continue // ended while we looked, or of another Pod
		}
		for _, file := range []string{"cmdline", "environ"} {
			if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				written[fmt.Sprintf("%s of process %s of %s", file, filepath.Base(dir), pod.Name)] = string(text)
				read++
			}
		}
		if token, err := os.ReadFile(filepath.Join(dir, "root", tokenFile)); err == nil {
			parts := strings.Split(strings.TrimSpace(string(token)), ".")
			all[tokenOf+pod.Name] = parts[len(parts)-1]
		}
	}
	if read == 0 && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
		return fmt.Errorf("no process of Pod %s was read", pod.Name)
	}
	return nil
}
