package monitoring

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

func TestGoldenFilesAreTheRenderOfTheCode(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		golden.File(t, name, content)
	}
}

// TestPrometheusFiresEachAlert: Prometheus takes rules and dashboard, each alert fires, and each panel shows something.
// The test uses the parser and the engine of Prometheus, in the only module that links them.
func TestPrometheusFiresEachAlert(t *testing.T) {
	const module = "../../tools/prometheus"
	for _, read := range []string{module, "../../docs/images", "../../docs/reference"} { // go test's cache sees here what the module's own tests read
		if _, err := os.ReadDir(read); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", ".")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "PWD=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEachAlertHasItsRunbook(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^## (\S+)$`)
	pages := map[string]string{} // the page of each alert
	var explained, raised []string
	for _, page := range []string{clusterRunbooks, memberRunbooks} {
		for _, h := range heading.FindAllStringSubmatch(read(t, "../../docs/reference/"+path.Base(page)), -1) {
			explained = append(explained, h[1])
			pages[h[1]] = page
		}
	}
	for _, rule := range allRules() {
		if rule.Alert == "" {
			continue
		}
		raised = append(raised, rule.Alert)
		if want := pages[rule.Alert] + "#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s links %s, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
		}
	}
	if diff := cmp.Diff(explained, raised); diff != "" {
		t.Errorf("sections of the runbooks, in order, against the alerts (-explained +raised):\n%s", diff)
	}
}

var metric = regexp.MustCompile(`\betcd_[a-z][a-z0-9_]*\b`)

// notMetrics are labels that look like metrics.
var notMetrics = []string{"etcd_cluster"}

// asked returns the metrics that the rules and the dashboard use.
func asked(t *testing.T) []string {
	t.Helper()
	expressions := []string{}
	for _, rule := range allRules() {
		expressions = append(expressions, rule.Expr, rule.Annotations["description"])
	}
	for _, p := range slices.Concat(fleetPanels(), clusterPanels()) {
		for _, q := range p.queries {
			expressions = append(expressions, q.expr)
		}
	}
	var names []string
	for _, e := range expressions {
		for _, record := range allRules() {
			if record.Record != "" {
				e = strings.ReplaceAll(e, record.Record, "")
			}
		}
		names = append(names, metric.FindAllString(e, -1)...)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return slices.Contains(notMetrics, name) })
}

// The exported metrics are in docs/reference/metrics.md, which the tests of the exporting packages keep correct. The
// metrics of etcd come from each minor.
func TestEveryMetricThatIsAskedForIsExported(t *testing.T) {
	var etcds []string
	own := read(t, "../../docs/reference/metrics.md")
	for _, name := range asked(t) {
		base := strings.TrimSuffix(name, "_sum")
		switch {
		case strings.Contains(own, "| `"+name+"` |"), strings.Contains(own, "| `"+base+"` | histogram |"):
		case strings.HasPrefix(name, "etcd_agent_"), strings.HasPrefix(name, "etcd_druid_"):
			t.Errorf("%s is not exported", name)
		default:
			etcds = append(etcds, name)
		}
	}
	if len(etcds) == 0 {
		t.Error("no metric of etcd is asked for")
	}
	for _, minor := range member.Minors {
		t.Run("etcd "+minor, func(t *testing.T) {
			address := machine.Address(t)
			member.Start(t, minor, member.Options{Args: []string{"--listen-metrics-urls=http://" + address}})
			text := scrape(t, "http://"+address+"/metrics")
			for _, name := range etcds {
				if !regexp.MustCompile(`(?m)^` + name + `[{ ]`).MatchString(text) {
					t.Errorf("etcd %s does not export %s", minor, name)
				}
			}
		})
	}
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func allRules() []Rule {
	var all []Rule
	for _, g := range Rules() {
		all = append(all, g.Rules...)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
