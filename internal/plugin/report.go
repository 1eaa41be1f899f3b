package plugin

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
)

const reportSuffix = ".tar.gz"

// reportFlags are those of the command report.
type reportFlags struct {
	file string
	tail int64
}

func (o *options) reportCommand() *cobra.Command {
	f := reportFlags{tail: 2000}
	command := o.forCluster(&cobra.Command{
		Use:   "report [CLUSTER]",
		Short: "Write a file for a support request: objects, Events, logs and versions",
		Long: "Write a file for a support request about one EtcdCluster, or about all of a namespace: objects, Events, logs, versions, and the output of\n" +
			"status and why, also of druid itself. The command reads no Secret. It removes values of environment variables, annotations of others, users in URLs,\n" +
			"and what looks like a key or a token. Logs can have names of keys in etcd, but no values. Read the file before you share it.",
		Example: "  kubectl druid report demo\n  kubectl druid report --namespace default --output report.tar.gz",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("got %d arguments, want the name of one EtcdCluster, or none for all of the namespace", len(args))
			}
			return nil
		},
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if f.tail < 1 {
			return fmt.Errorf("--tail is %d, want at least one line", f.tail)
		}
		clusters, err := k.reported(cmd.Context(), args)
		if err != nil {
			return err
		}
		return o.report(cmd, k, clusters, f)
	})
	flags := command.Flags()
	flags.StringVarP(&f.file, "output", "o", "", "`file` to write, which must not exist. If not set, the name has the namespace and the time")
	flags.Int64Var(&f.tail, "tail", f.tail, "`number` of the last lines of each log")
	return command
}

// reported are the EtcdClusters that the report is about.
func (k *kube) reported(ctx context.Context, args []string) ([]v1alpha1.EtcdCluster, error) {
	if len(args) == 0 {
		return k.clusters(ctx, k.namespace)
	}
	one, err := k.cluster(ctx, args[0])
	return []v1alpha1.EtcdCluster{one}, err
}

// report writes the file. A file that is not complete does not stay.
func (o *options) report(cmd *cobra.Command, k *kube, clusters []v1alpha1.EtcdCluster, f reportFlags) error {
	now := o.now().UTC()
	if f.file == "" {
		f.file = "druid-report-" + k.namespace + "-" + now.Format("20060102T150405Z") + reportSuffix
	}
	file, err := os.OpenFile(f.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the file
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already, and a report overwrites no file. Name another one with --output", f.file)
	}
	if err != nil {
		return fmt.Errorf("create the report: %w", err)
	}
	progress := cli.NewProgress(cmd.ErrOrStderr())
	b := newBundle(file, strings.TrimSuffix(filepath.Base(f.file), reportSuffix), now, progress)
	r := reporter{kube: k, bundle: b, tail: f.tail}
	r.all(cmd.Context(), clusters)
	err = errors.Join(b.close(), file.Close(), cmd.Context().Err())
	progress.Apart(nil)
	if err != nil {
		return fmt.Errorf("write the report %s: %w", f.file, errors.Join(err, os.Remove(f.file)))
	}
	info, err := os.Stat(f.file)
	if err != nil {
		return fmt.Errorf("read the report that was written: %w", err)
	}
	written := info.Size()
	p := newPage(cmd.OutOrStdout(), o.now())
	p.line(cell{text: fmt.Sprintf("The report about %s of namespace %s is in %s: %s, %s.", counted(len(clusters), "EtcdCluster"), k.namespace,
		f.file, counted(b.files, "file"), size(&written))})
	for _, problem := range b.problems {
		p.line(cell{"Not in the report: " + problem, middle})
	}
	p.line(cell{text: "No Secret was read, and what looks secret was removed. Read the report before you share it:"})
	p.line(cell{text: "  tar -xzf " + f.file})
	return p.err
}

// bundle is an archive of texts. What is secret is removed from everything that comes into it.
type bundle struct {
	compressed *gzip.Writer
	tar        *tar.Writer
	root       string
	now        time.Time
	files      int
	problems   []string
	progress   *cli.Progress
	err        error
}

func newBundle(w io.Writer, root string, now time.Time, progress *cli.Progress) *bundle {
	compressed := gzip.NewWriter(w)
	return &bundle{compressed: compressed, tar: tar.NewWriter(compressed), root: root, now: now, progress: progress}
}

// text adds a file.
func (b *bundle) text(name, text string) { b.add(name, redactText(text)) }

func (b *bundle) add(name, text string) {
	if b.err != nil {
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{Name: b.root + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.now, Typeflag: tar.TypeReg})
	if b.err == nil {
		_, b.err = io.WriteString(b.tar, text)
	}
	b.files++
	b.progress.Show("Writing the report: " + counted(b.files, "file"))
}

// objects adds a file with objects. An empty list has a file too: it says that there are none.
func (b *bundle) objects(name string, all []unstructured.Unstructured) {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", counted(len(all), "object"))
	for _, object := range all {
		raw, err := yaml.Marshal(redactValue(object.DeepCopy().Object))
		if err != nil {
			b.problem(name, err)
			continue
		}
		text.WriteString("---\n")
		text.Write(raw)
	}
	b.add(name, text.String())
}

// problem notes what is missing.
func (b *bundle) problem(what string, err error) {
	b.problems = append(b.problems, redactText(fmt.Sprintf("%s: %v", what, err)))
}

func (b *bundle) close() error {
	b.text("README.txt", b.readme())
	return errors.Join(b.err, b.tar.Close(), b.compressed.Close())
}

func (b *bundle) readme() string {
	text := "Report of kubectl druid, " + b.now.Format(time.RFC3339) + "\n\n" +
		"versions.txt       versions of the plugin, of Kubernetes, of druid's API, and all images of druid\n" +
		"NAMESPACE/*.yaml   objects\n" +
		"NAMESPACE/CLUSTER  the output of status and why\n" +
		"NAMESPACE/logs     logs by Pod and container, the last lines only\n\n" +
		"No Secret was read. " + removed + " stands for what was removed: values of environment variables, annotations of others,\n" +
		"users in URLs, and what looks like a key, a password or a token.\n"
	if len(b.problems) > 0 {
		text += "\nNot in the report:\n- " + strings.Join(b.problems, "\n- ") + "\n"
	}
	return text
}
