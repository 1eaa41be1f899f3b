package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/pages"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// The commands of a page end within this time: some wait for Pods, with a timeout of their own of up to ten minutes.
const commandWithin = 11 * time.Minute

// repo is the directory of the repository, from that of this package.
const repo = "../.."

// page is a page of the documentation that a story follows as a reader does. Its EtcdCluster is demo, in a namespace of the story.
type page struct {
	*pages.Session
	path    string
	dir     string
	cluster *harness.Cluster
	// replaced has what a reader replaces in the commands, a part of pages.Replaced.
	replaced map[string]string
	// before has what a reader, or the story, does before a command. The key is the command as the page has it.
	before map[string]func()
	// excerpt checks a yaml block.
	excerpt func(t *testing.T, text string)
}

// openPage starts a shell for a page in a directory with the samples, where kubectl talks to the namespace of the cluster.
func openPage(t *testing.T, path string, c *harness.Cluster) *page {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "docs/samples"), os.DirFS(filepath.Join(repo, "docs/samples"))); err != nil {
		t.Fatalf("prepare the directory of a reader: %v", err)
	}
	session := shellIn(t, dir, c.Namespace)
	return &page{Session: session, path: path, dir: dir, cluster: c, replaced: map[string]string{}, before: map[string]func(){}}
}

// shellIn starts a shell in a directory, where kubectl talks to a namespace of the rig.
func shellIn(t *testing.T, dir, namespace string) *pages.Session {
	t.Helper()
	home, kubectl := t.TempDir(), rig.Lab.KubectlCmd(t.Context())
	self, selfErr := os.Executable()
	const etcdctl = "etcdctl-3.6"
	built, err := binaries.Programs(t.Context(), t.Logf, etcdctl)
	if err = errors.Join(err, selfErr); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"kubectl": kubectl.Path, pluginName: self, "etcdctl": built[etcdctl]} {
		if err := os.Symlink(program, filepath.Join(home, name)); err != nil {
			t.Fatalf("prepare the programs of a reader: %v", err)
		}
	}
	config, err := clientcmd.Load(rig.Lab.Kubeconfig())
	if err != nil {
		t.Fatalf("read the rig's kubeconfig: %v", err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, filepath.Join(home, "kubeconfig")); err != nil {
		t.Fatalf("write the kubeconfig of a reader: %v", err)
	}
	env := append(os.Environ(), "KUBECONFIG="+filepath.Join(home, "kubeconfig"), "PATH="+home+":"+os.Getenv("PATH"))
	session, err := pages.NewSession(t.Context(), dir, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session
}

// follow runs all commands of the page, and compares what they print with what the page shows.
func (p *page) follow(t *testing.T) {
	t.Helper()
	blocks, err := pages.Read(filepath.Join(repo, "docs", p.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		switch {
		case b.NotRun != "":
			t.Logf("%s:%d: not run: %s", p.path, b.Line, b.NotRun)
		case b.Language == pages.YAML && p.excerpt == nil:
			t.Fatalf("%s:%d: the story does not know what this is an excerpt of", p.path, b.Line)
		case b.Language == pages.YAML:
			p.excerpt(t, b.Text)
		}
		for _, step := range b.Steps {
			if b.NotRun == "" {
				p.run(t, step)
			}
		}
	}
	if len(p.before) > 0 {
		t.Errorf("%s does not have the commands that the story prepares: %v", p.path, p.before)
	}
}

func (p *page) run(t *testing.T, step pages.Step) {
	t.Helper()
	where := fmt.Sprintf("%s:%d", p.path, step.Line)
	if before, ok := p.before[step.Command]; ok {
		delete(p.before, step.Command)
		before()
	}
	command := p.filled(t, where, step.Command)
	t.Logf("%s: $ %s", where, command)
	if strings.HasSuffix(command, " -w") {
		enough := func(printed []string) error { return pages.Compare(step.Shown, printed) }
		if err := p.Watch(t.Context(), command, formWithin, enough); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		return
	}
	try := func(context.Context) error {
		printed, err := p.Run(command, commandWithin)
		if err != nil || !step.Checked {
			return err
		}
		for i, line := range printed {
			printed[i] = strings.ReplaceAll(line, p.cluster.Namespace, "default") // where a reader works
		}
		return pages.Compare(step.Shown, printed)
	}
	if reads(command) {
		harness.Eventually(t, time.Minute, where, try)
	} else if err := try(t.Context()); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
}

// reads says whether a command only reads. A reader repeats such a command until it shows the change that the page is about.
func reads(command string) bool {
	return slices.ContainsFunc([]string{"get ", "describe ", "logs "}, func(verb string) bool {
		return strings.HasPrefix(command, "kubectl "+verb)
	})
}

// filled is a command with what a reader replaces.
func (p *page) filled(t *testing.T, where, command string) string {
	t.Helper()
	for word := range pages.Replaced {
		if !strings.Contains(command, word) {
			continue
		}
		value, ok := p.replaced[word]
		if !ok {
			t.Fatalf("%s: the story has nothing to replace %q with", where, word)
		}
		command = strings.ReplaceAll(command, word, value)
	}
	return command
}
