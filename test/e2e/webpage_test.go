package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/plugin"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/states"
)

// webPage is kubectl druid ui, opened as a browser opens it.
type webPage struct {
	server string
	client *http.Client
}

// openWebPage runs kubectl druid ui until the end of the test, and opens the address that it prints.
func openWebPage(t *testing.T, p pluginOf) *webPage {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	read, write := io.Pipe()
	root := plugin.NewCommand()
	root.SetArgs([]string{"ui", "--kubeconfig", rig.Lab.KubeconfigPath(), "--namespace", p.Namespace})
	root.SetOut(write)
	root.SetErr(write)
	var group errgroup.Group
	group.Go(func() error {
		defer write.Close()
		if code := cli.Main(ctx, root, slog.New(slog.DiscardHandler)); code != 0 {
			return fmt.Errorf("kubectl druid ui: exit code %d", code)
		}
		return nil
	})
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	printed := bufio.NewReader(read)
	var line string
	for !strings.Contains(line, "http://") {
		var err error
		if line, err = printed.ReadString('\n'); err != nil {
			t.Fatalf("kubectl druid ui printed no address: %v", err)
		}
	}
	group.Go(func() error {
		_, err := io.Copy(io.Discard, printed)
		return err
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(line)
	w := &webPage{client: &http.Client{Jar: jar}}
	w.server, _, _ = strings.Cut(address, "/?")
	if _, err := w.get(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *webPage) get(ctx context.Context, address string) (page states.WebPage, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return page, err
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return page, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return page, err
	}
	return states.ReadWebPage(string(text))
}

// onThePage waits until the page of the cluster has the state and all advice in the regions for it, and the list has the state.
func (s *shownStates) onThePage(t *testing.T, word string, printed, advice []string) {
	t.Helper()
	cluster := s.p.Namespace + "/" + s.p.Name
	harness.Eventually(t, time.Minute, "the web page", func(context.Context) error {
		ctx, cancel := context.WithTimeout(t.Context(), verbWithin)
		defer cancel()
		page, err := s.page.get(ctx, s.page.server+"/clusters/"+cluster)
		if err != nil {
			return err
		}
		list, err := s.page.get(ctx, s.page.server+"/")
		if err != nil {
			return err
		}
		next := s.has(page, "region", "What now", append(printed, advice...)...)
		return errors.Join(next, s.has(page, "region", cluster, word), s.has(list, "table", "EtcdClusters, the worst first", word, s.p.Name),
			none(page.Texts("alert", "")), none(list.Texts("alert", "")))
	})
}

// has returns an error if the element with a role and a name lacks one of the words.
func (s *shownStates) has(page states.WebPage, role, name string, words ...string) error {
	found := page.Texts(role, name)
	if len(found) != 1 {
		return fmt.Errorf("%d elements are a %s %q", len(found), role, name)
	}
	text := s.steady(found[0])
	var missing []error
	for _, word := range words {
		if !strings.Contains(text, word) {
			missing = append(missing, fmt.Errorf("no %q in the %s %q: %s", word, role, name, text))
		}
	}
	return errors.Join(missing...)
}

func none(alerts []string) error {
	if len(alerts) > 0 {
		return fmt.Errorf("the page has the alerts %q", alerts)
	}
	return nil
}

// adviceOf returns the steps and the commands that status printed below "What now", or its last line.
func adviceOf(status string) (advice []string) {
	_, next, found := strings.Cut(status, "\nWhat now\n")
	if !found {
		return nil
	}
	for line := range strings.Lines(next) {
		line = strings.TrimSpace(line)
		if _, step, numbered := strings.Cut(line, ". "); numbered && line[0] >= '1' && line[0] <= '9' {
			line = step
		}
		if !strings.HasPrefix(line, "https://") && !strings.HasPrefix(line, "[exit code ") {
			advice = append(advice, line)
		}
	}
	return advice
}
