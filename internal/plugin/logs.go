package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
)

// maxLogLine bounds a line, in bytes. The kubelet divides longer ones at 16 KiB.
const maxLogLine = 1 << 20

// logFlags are those of the command logs.
type logFlags struct {
	follow  bool
	tail    int64
	since   time.Duration
	members []string
}

func (o *options) logsCommand() *cobra.Command {
	f := logFlags{tail: 100}
	command := o.forCluster(&cobra.Command{
		Use:   "logs CLUSTER",
		Short: "Show the logs of etcd, of the agents and of druid, merged and readable",
		Long: "Show the logs of etcd and of the agents of all members, in the order of their times. The times are in UTC.\n" +
			"Lines of druid about the EtcdCluster are among them, unless you choose members, or may not read the logs of druid.\n" +
			"Each line has the Pod, the container, the level, the message and its values. With --follow, lines appear as they come.",
		Example: "  kubectl druid logs demo --since 10m\n  kubectl druid logs demo --follow --member demo-bqdq7",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if f.since > 0 && !cmd.Flags().Changed("tail") {
			f.tail = -1
		}
		sources, err := k.logSources(cmd.Context(), args[0], f)
		if err != nil {
			return err
		}
		var missing string
		if len(f.members) == 0 {
			var druid []logStream
			druid, missing = k.druidLogs(cmd.Context(), args[0])
			sources = append(sources, druid...)
		}
		w := &logWriter{page: newPage(cmd.OutOrStdout(), o.now()), warn: newPage(cmd.ErrOrStderr(), o.now()), hold: !f.follow}
		if missing != "" {
			w.warning(missing)
		}
		return k.logs(cmd.Context(), sources, f, w)
	})
	flags := command.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "show new lines as they come, until you interrupt the command")
	flags.Int64Var(&f.tail, "tail", f.tail, "`number` of the last lines of each container, -1 for all. With --since, the default is all")
	flags.DurationVar(&f.since, "since", 0, "show only lines that are newer than this, such as 10m")
	flags.StringSliceVar(&f.members, "member", nil, "`names` of members. If not set, the logs are those of all members")
	return command
}

// logSource is a container with a log.
type logSource struct{ pod, container string }

// logStream is a log of which lines are wanted: those that wanted accepts, or all without it.
type logStream struct {
	logSource
	namespace string
	wanted    func(line string) bool
}

// logSources are etcd and the agent of each member.
func (k *kube) logSources(ctx context.Context, cluster string, f logFlags) (all []logStream, err error) {
	c, err := k.cluster(ctx, cluster)
	if err != nil {
		return nil, err
	}
	pods, err := k.typed.CoreV1().Pods(k.namespace).List(ctx, selecting(cluster))
	if err != nil {
		return nil, fmt.Errorf("list the Pods of EtcdCluster %s/%s: %w", k.namespace, cluster, err)
	}
	for _, pod := range pods.Items {
		if len(f.members) > 0 && !slices.Contains(f.members, pod.Name) {
			continue
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if c.Name == containerEtcd || c.Name == containerAgent {
				all = append(all, logStream{logSource: logSource{pod.Name, c.Name}, namespace: k.namespace})
			}
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case len(pods.Items) > 0:
		return nil, fmt.Errorf("EtcdCluster %s/%s has no such member, so there is no log", k.namespace, cluster)
	case c.Spec.Replicas == 0:
		return nil, fmt.Errorf("EtcdCluster %s/%s is paused: it has no Pod, so there is no log", k.namespace, cluster)
	default:
		return nil, fmt.Errorf("EtcdCluster %s/%s has no Pod, so there is no log", k.namespace, cluster)
	}
}

// logs reads all sources at once. A source that cannot be read does not hide the others.
func (k *kube) logs(ctx context.Context, sources []logStream, f logFlags, w *logWriter) error {
	group, reading := errgroup.WithContext(ctx)
	read := make([]bool, len(sources))
	for i, s := range sources {
		group.Go(func() error {
			err := k.log(reading, s, f, w)
			read[i] = err == nil
			if err != nil && reading.Err() == nil {
				w.warning(fmt.Sprintf("The log of %s in Pod %s/%s could not be read: %v", s.container, s.namespace, s.pod, err))
			}
			return w.failed()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil && f.follow {
		return nil // the user ended it
	}
	if err := w.flush(); err != nil {
		return err
	}
	if !slices.Contains(read, true) {
		return errors.New("no log could be read")
	}
	return nil
}

func (k *kube) log(ctx context.Context, s logStream, f logFlags, w *logWriter) error {
	options := &corev1.PodLogOptions{Container: s.container, Follow: f.follow, Timestamps: true}
	if f.tail >= 0 {
		lines := f.tail
		if s.wanted != nil {
			lines = druidLines
		}
		options.TailLines = &lines
	}
	if f.since > 0 {
		options.SinceSeconds = new(max(int64(f.since.Seconds()), 1)) // by the clock of the node
	}
	stream, err := k.typed.CoreV1().Pods(s.namespace).GetLogs(s.pod, options).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	return scan(stream, s, f, w)
}

// scan reads a log. Of one whose lines are chosen, it takes the last ones after that choice; with --follow, all of them.
func scan(stream io.Reader, s logStream, f logFlags, w *logWriter) error {
	scanner := bufio.NewScanner(stream)
	scanner.Buffer(nil, maxLogLine)
	var last []logLine
	for scanner.Scan() {
		switch {
		case s.wanted != nil && !s.wanted(scanner.Text()): // it is about something else
		case s.wanted == nil || f.follow || f.tail < 0:
			w.add(parseLine(scanner.Text(), s.logSource))
		default:
			last = append(last, parseLine(scanner.Text(), s.logSource))
			last = last[max(0, len(last)-int(f.tail)):]
		}
	}
	for _, line := range last {
		w.add(line)
	}
	return scanner.Err()
}

// logLine is a line of a log.
type logLine struct {
	at         time.Time
	source     logSource
	level, msg string
	values     string
}

// hidden are the keys that a line does not repeat: the container has them, or the line begins with them.
var hidden = []string{"time", "ts", "level", "msg", "caller", "logger"}

// parseLine reads a line that begins with the time of the kubelet. The agent and etcd write JSON, with other keys. Any other
// text is a message.
func parseLine(text string, s logSource) logLine {
	stamp, rest, _ := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return logLine{source: s, msg: text}
	}
	line := logLine{at: at, source: s, msg: rest}
	var fields map[string]any
	decoder := json.NewDecoder(strings.NewReader(rest))
	decoder.UseNumber()
	if decoder.Decode(&fields) != nil {
		return line
	}
	msg, hasMessage := fields["msg"].(string)
	if !hasMessage {
		return line
	}
	level, _ := fields["level"].(string)
	line.level, line.msg = strings.ToUpper(level), msg
	var values []string
	for key, value := range fields {
		if slices.Contains(hidden, key) {
			continue
		}
		shown, ok := value.(string)
		if raw, err := json.Marshal(value); !ok || strings.ContainsAny(shown, " \"\n\t=") || shown == "" {
			shown = string(raw)
			if err != nil {
				continue
			}
		}
		values = append(values, key+"="+shown)
	}
	slices.Sort(values)
	line.values = strings.Join(values, " ")
	return line
}

// logWriter prints lines: at once, or sorted at the end.
type logWriter struct {
	mu         sync.Mutex
	page, warn *page
	hold       bool
	lines      []logLine
}

func (w *logWriter) add(line logLine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold {
		w.lines = append(w.lines, line)
		return
	}
	w.page.log(line)
}

func (w *logWriter) warning(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warn.line(cell{text, middle})
}

func (w *logWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.page.err, w.warn.err)
}

// flush prints what was held, in the order of the times.
func (w *logWriter) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.lines, func(a, b logLine) int { return a.at.Compare(b.at) })
	for _, line := range w.lines {
		w.page.log(line)
	}
	return w.page.err
}

// log prints a line.
func (p *page) log(line logLine) {
	of := plain
	switch line.level {
	case "ERROR", "FATAL", "PANIC", "DPANIC":
		of = bad
	case "WARN", "WARNING":
		of = middle
	default: // nothing to see
	}
	at := strings.Repeat(" ", len("15:04:05.000"))
	if !line.at.IsZero() {
		at = line.at.UTC().Format("15:04:05.000")
	}
	p.line(cell{text: fmt.Sprintf("%s %s %-5s ", at, line.source.pod, line.source.container)}, cell{fmt.Sprintf("%-5s ", line.level), of},
		cell{line.msg, strong}, cell{text: " " + line.values})
}
