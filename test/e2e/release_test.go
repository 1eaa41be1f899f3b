package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/pages"
)

const (
	// changelog is where a release finds what it changes.
	changelog = "docs/reference/changelog.md"
	// pageOfReleases has the commands that install a release by its digest, for the release that it names.
	pageOfReleases = "how-to/install/release.md"
	namedRelease   = "v0.1.0"
	// druidRegistry has the image of the releases, by the name druidRepository.
	druidRegistry   = "ghcr.io"
	druidRepository = "etcd-druid/druid"
)

// TestReleaseUpgradeAndRollback: a release is installed by digest, upgraded and rolled back under a writer. A user
// takes a release from its files and from a registry: the nodes pull the image of druid and of the agents by the digest
// in the release notes. An upgrade of druid, and the way back, give each agent the image of druid in its running Pod,
// and touch no etcd.
func TestReleaseUpgradeAndRollback(t *testing.T) {
	stories.Begin(t)
	registry := rig.ServeRegistry(t, druidRegistry)
	// The releases have the same sources. Only what they say of their version differs, and with it all digests.
	versions := stories.Versions(t)
	first, next := versions[0], versions[1]
	clone := cloneOfTheSources(t, first, next)
	pushed := map[string]string{first: pushRelease(t, clone, first, registry), next: pushRelease(t, clone, next, registry)}
	if pushed[first] == pushed[next] {
		t.Fatalf("both releases have the digest %s", pushed[first])
	}
	user := shellIn(t, clone, harness.DruidNamespace)
	t.Cleanup(func() { rig.Reinstall(t) })
	image := installRelease(t, user, first)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)
	isOfRelease(t, c, view, first, image, pushed[first])
	before := runningEtcds(t, c, view)
	for _, version := range versions[1:] {
		w.Gap()
		image := imageOf(t, user, version)
		agentsFollow(t, c, w, view, before, image, func() { installRelease(t, user, version) })
		isOfRelease(t, c, view, version, image, pushed[version])
		view = stableAs(t, c, view)
	}
	pulledByDigest(t, registry, pushed)
	w.Stop(t, c.Etcd(t))
}

// cloneOfTheSources is a clone whose only commit has the sources as they are, and a section in the changelog for each version, as one who
// publishes a release writes it.
func cloneOfTheSources(t *testing.T, versions ...string) string {
	t.Helper()
	clone := t.TempDir()
	for name := range strings.SplitSeq(printed(t, repo, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"), "\x00") {
		if name == "" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(repo, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not yet committed
		}
		to := filepath.Join(clone, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, content, 0o644)
		}
		if err != nil {
			t.Fatalf("copy the sources: %v", err)
		}
	}
	file := filepath.Join(clone, changelog)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		if section := "\n## Version " + version[1:] + "\n"; !strings.Contains(string(text), section) {
			text = fmt.Appendf(text, "%s\nThe release of a test.\n\n### Before you upgrade\n\nNo steps.\n", section)
		}
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	printed(t, clone, "git", "init", "--quiet")
	printed(t, clone, "git", "add", "--all")
	printed(t, clone, "git", "-c", "user.name=e2e", "-c", "user.email=e2e@example.com", "commit", "--quiet", "--message=Release")
	return clone
}

// pushRelease builds a release for this machine and pushes its image, and returns the digest.
func pushRelease(t *testing.T, clone, version string, registry *harness.Registry) string {
	t.Helper()
	begun := time.Now()
	variables := []string{"VERSION=" + version, "PLATFORMS=linux/" + runtime.GOARCH}
	printed(t, clone, "make", append([]string{"release"}, variables...)...)
	built := time.Since(begun)
	to := registry.Address + "/" + druidRepository
	said := printed(t, clone, "make", append([]string{"push-release", "TO=" + to}, variables...)...)
	_, digest, found := strings.Cut(said, "pushed "+to+"@")
	digest, _, ended := strings.Cut(digest, "\n")
	if !found || !ended {
		t.Fatalf("make push-release does not print the digest: %s", said)
	}
	t.Logf("%s was built after %s, and pushed after %s", version, built.Round(time.Second), time.Since(begun).Round(time.Second))
	return digest
}

// printed is what a program prints to its output and its error output. make must not see the variables of the make that runs the tests.
func printed(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") })
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run %s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// installRelease runs the commands of the page that install a release by its digest, and returns the image that they name.
func installRelease(t *testing.T, user *pages.Session, version string) string {
	t.Helper()
	for _, step := range stepsOfReleases(t) {
		command := strings.ReplaceAll(step.Command, namedRelease, version)
		said, err := user.Run(command, commandWithin)
		if err != nil {
			t.Fatalf("%s:%d: %v", pageOfReleases, step.Line, err)
		}
		t.Logf("%s:%d: $ %s\n%s", pageOfReleases, step.Line, command, said[max(0, len(said)-1):])
	}
	return imageOf(t, user, version)
}

// imageOf is what the first command of the page calls the image of a release.
func imageOf(t *testing.T, user *pages.Session, version string) string {
	t.Helper()
	command := strings.ReplaceAll(stepsOfReleases(t)[0].Command, namedRelease, version) + `; echo "$IMAGE"`
	said, err := user.Run(command, time.Minute)
	if err != nil || len(said) != 1 {
		t.Fatalf("the image of release %s is %q, %v", version, said, err)
	}
	return said[0]
}

// stepsOfReleases are the commands of the page that install a release by its digest.
func stepsOfReleases(t *testing.T) []pages.Step {
	t.Helper()
	blocks, err := pages.Read(filepath.Join(repo, "docs", pageOfReleases))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(blocks, func(b pages.Block) bool { return strings.HasPrefix(b.Text, "IMAGE=") })
	if i < 0 {
		t.Fatalf("%s has no block that begins with IMAGE=", pageOfReleases)
	}
	return blocks[i].Steps
}

// isOfRelease fails the test unless druid and all agents run the image of a release, pulled by its digest, and say its version.
func isOfRelease(t *testing.T, c *harness.Cluster, view harness.View, version, image, digest string) {
	t.Helper()
	if want := fmt.Sprintf("%s/%s:%s@%s", druidRegistry, druidRepository, version, digest); image != want {
		t.Errorf("the release notes name the image %s, and the registry has %s", image, want)
	}
	harness.Eventually(t, scaleWithin, "druid of "+version, func(ctx context.Context) error {
		pods, err := rig.DruidPods(ctx)
		if err != nil || len(pods) != 2 {
			return errors.Join(err, fmt.Errorf("%d Pods of druid", len(pods)))
		}
		return errors.Join(runsImage(&pods[0], "druid", image, digest), runsImage(&pods[1], "druid", image, digest))
	})
	for member := range view.Members {
		harness.Eventually(t, scaleWithin, "the agent of "+member+" of "+version, func(ctx context.Context) error {
			pod, podErr := c.Pod(ctx, member)
			lease, leaseErr := c.Member(ctx, member)
			if err := errors.Join(podErr, leaseErr); err != nil {
				return err
			}
			if lease.AgentVersion != version {
				return fmt.Errorf("the agent says that it is of version %s", lease.AgentVersion)
			}
			return runsImage(pod, "agent", image, digest)
		})
	}
}

// runsImage returns an error unless a container asks for an image, and runs the one with the digest.
func runsImage(pod *corev1.Pod, container, image, digest string) error {
	for _, spec := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if spec.Name == container && spec.Image != image {
			return fmt.Errorf("container %s of Pod %s is to run %s, want %s", container, pod.Name, spec.Image, image)
		}
	}
	if s := containerOf(pod, container); s.State.Running == nil || !strings.HasSuffix(s.ImageID, "@"+digest) {
		return fmt.Errorf("container %s of Pod %s is %+v, want it to run %s", container, pod.Name, s, digest)
	}
	return nil
}

// pulledByDigest fails the test unless each node asked the registry for each release by its digest, and no node asked for a tag.
func pulledByDigest(t *testing.T, registry *harness.Registry, digests map[string]string) {
	t.Helper()
	asked := registry.Asked()
	for version, digest := range digests {
		if nodes := asked[digest]; len(nodes) != len(rig.Lab.Nodes()) {
			t.Errorf("%v asked for %s by its digest %s, want each of the nodes %v", nodes, version, digest, rig.Lab.Nodes())
		}
	}
	for reference, nodes := range asked {
		if !strings.HasPrefix(reference, "sha256:") {
			t.Errorf("%v asked for the tag %s, want digests alone", nodes, reference)
		}
	}
}
