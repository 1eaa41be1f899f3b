package webui

import (
	"crypto/x509"
	"errors"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

func TestTheFleetIsShownWorstFirst(t *testing.T) {
	b := open(t, every())
	code, text := b.get("/")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	golden.File(t, "testdata/fleet.html", text)
	links := regexp.MustCompile(`href="/base(/clusters/[^"]+)"`).FindAllStringSubmatch(text, -1)
	for i, c := range every().clusters {
		if links[i][1] != ClusterPath(c.Namespace, c.Name) {
			t.Errorf("row %d is %s, want %s", i, links[i][1], c.Namespace)
		}
		if code, _ := b.get(links[i][1]); code != http.StatusOK {
			t.Errorf("%s: %d", links[i][1], code)
		}
	}
}

func TestTheFilterLeavesOut(t *testing.T) {
	b := open(t, every())
	for path, want := range map[string]int{"/?q=quorumlost": 2, "/?q=MembersNOTready&problems=1": 1, "/?q=tls": 1, "/?q=tls&problems=1": 0, "/?q=nothing": 0} {
		_, text := b.get(path)
		if got := strings.Count(text, `<tr role="row" id="c-`); got != want {
			t.Errorf("%s shows %d, want %d", path, got, want)
		}
		says(t, text, "The filter shows")
	}
	_, text := b.get(`/?q="><script>alert(1)</script>`)
	if strings.Contains(text, "<script>") {
		t.Errorf("the text of the filter is not escaped:\n%s", text)
	}
	says(t, text, `data-live="/base/live/fleet?q=%22`)
}

// The page of a cluster says what the view says.
func TestEachSituationIsShown(t *testing.T) {
	from := every()
	b := open(t, from)
	for _, c := range from.clusters {
		code, text := b.get(ClusterPath(c.Namespace, c.Name))
		if code != http.StatusOK {
			t.Errorf("%s: %d", c.Namespace, code)
		}
		if c.Namespace == "serving" || c.Namespace == "quorum-lost-with-a-plan" || c.Namespace == "tls" {
			golden.File(t, "testdata/"+c.Namespace+".html", text)
		}
		words := []string{c.StateWord(situations.Now).Text, c.Explanation(), c.ReadyWord(), c.LeaderWord(), c.Rule, view.RuleDocs(c.Rule), "Read at "}
		for _, step := range c.Next {
			words = append(words, view.Sentence(step.Do), step.Command, step.Docs)
		}
		for _, m := range c.Members {
			words = append(append(words, m.Name, m.StateWord().Text, m.RoleWord(), view.Size(m.DBSize), m.DiskVerdict().Text, m.NodeWord().Text,
				view.Or(m.Zone)), m.Notes()...)
		}
		page := clusterPage{frame: frame{Now: situations.Now}}
		page.compose(c)
		for _, line := range page.BackupLines {
			words = append(words, line.Text)
		}
		for _, certificate := range c.Certificates {
			words = append(words, certificate.Word(situations.Now).Text)
		}
		for _, condition := range c.Conditions {
			words = append(words, condition.Reason, view.Sentence(condition.Message), condition.Docs)
		}
		for _, e := range c.Events {
			words = append(words, e.Reason, e.Message)
		}
		for _, u := range c.Unread {
			words = append(words, u.Sentence())
		}
		shown := html.UnescapeString(text)
		for _, word := range words {
			if !strings.Contains(shown, word) {
				t.Errorf("%s does not say %q", c.Namespace, word)
			}
		}
		if ids := regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(text,
			-1); len(ids) != len(slices.CompactFunc(slices.SortedFunc(slices.Values(ids), byID), sameID)) {
			t.Errorf("%s has an id twice: %v", c.Namespace, ids)
		}
	}
}

// The error of a store, or of a member, is in several conditions and Events. The view that other pages read keeps them all.
func TestAPageShowsALongTextOnce(t *testing.T) {
	const failure = "put a/delta/… in bucket b: the store responded 403 AccessDenied (Access Denied)"
	const reason = "volume /var/lib/etcd: permission denied (it is not writable by the user of the Pod)"
	c := every().clusters[0]
	c.Namespace, c.Message, c.Backup = "once", "Changes are not saved: "+failure+".", &view.Backup{Error: failure}
	c.Members = []view.Member{{Name: "a", State: "NotReady", Message: reason}, {Name: "b", Rule: "volume-unread", Waits: reason}}
	c.Conditions = []view.Condition{{Type: "AllMembersReady", Message: "1 of 3 members ready. Member a: " + reason}, {Type: "BackupReady", Message: c.Message}}
	c.Events = []view.Event{{Reason: "BackupFailed", Message: c.Message}}
	from := &source{clusters: []view.Cluster{c}}
	b := open(t, from)
	_, text := b.get(ClusterPath(c.Namespace, c.Name))
	text = html.UnescapeString(text)
	for part, times := range map[string]int{failure: 1, reason: 2, "See above.": 2, "✖ failing: see above": 1, "Member a: see above": 1} {
		if n := strings.Count(text, part); n != times {
			t.Errorf("%q is there %d times, want %d:\n%s", part, n, times, text)
		}
	}
	if got := from.clusters[0]; !strings.Contains(got.Conditions[0].Message, reason) || !strings.Contains(got.Events[0].Message, failure) {
		t.Errorf("the page changed what it read: %+v %+v", got.Conditions, got.Events)
	}
}

func byID(a, b []string) int    { return strings.Compare(a[1], b[1]) }
func sameID(a, b []string) bool { return a[1] == b[1] }

func TestTextsOfOthersAreEscaped(t *testing.T) {
	const evil = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>`
	c := every().clusters[0]
	c.Namespace, c.Name, c.Message, c.Version, c.Leader, c.Endpoints, c.Rule = evil, evil, evil, evil, evil, []string{evil}, evil
	c.Next = []view.Step{{Do: evil, Command: evil, Docs: "javascript:alert(1)"}}
	c.Members = []view.Member{{Name: evil, Role: evil, State: evil, Reason: evil, Message: evil, Node: evil, Zone: evil, Version: evil, Agent: evil,
		Waits: evil + "2", Rule: evil}}
	c.Backup = &view.Backup{Error: evil}
	c.Certificates = []view.Certificate{{Plane: evil, Stage: evil, Message: evil}}
	c.Conditions = []view.Condition{{Type: evil, Status: evil, Reason: evil, Message: evil, Docs: "javascript:alert(1)"}}
	c.Events = []view.Event{{Type: evil, Reason: evil, Message: evil}}
	c.Unread = []view.Unread{{Kind: evil, Problem: evil}}
	from := &source{clusters: []view.Cluster{c}, unread: c.Unread}
	b := open(t, from)
	for _, path := range []string{"/", ClusterPath(evil, evil)} {
		code, text := b.get(path)
		if code != http.StatusOK || strings.Count(text, "&lt;script") < 3 {
			t.Errorf("%s: %d does not show the texts:\n%s", path, code, text)
		}
		for _, bad := range []string{"<script>", "<img", `href="javascript`, `onerror=alert(1)>`} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q:\n%s", path, bad, text)
			}
		}
	}
}

// TestErrorIsSentenceAndDataStays: an error is a sentence and the last data stays.
func TestErrorIsSentenceAndDataStays(t *testing.T) {
	group := schema.GroupResource{Group: "etcd.druid.dev", Resource: "etcdclusters"}
	errs := map[error][]string{
		apierrors.NewForbidden(group, "demo", errors.New(`User "kim" cannot list`)): {"You may not read this.", "cannot list",
			"Ask for the permission.", permissionsDocs},
		apierrors.NewUnauthorized("token expired"): {"does not accept your credentials", "Log in to Kubernetes again"},
		&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}: {"The API server cannot be reached.",
			"connection refused", "kubectl cluster-info"},
		errors.New("druid's CustomResourceDefinitions are not installed in this <cluster>"): {"Druid&#39;s CustomResourceDefinitions are not installed",
			"&lt;cluster&gt;"},
	}
	for err, words := range errs {
		synctest.Test(t, func(t *testing.T) {
			from := every()
			from.err = err
			b := open(t, from)
			for _, path := range []string{"/", "/clusters/serving/demo"} {
				code, text := b.get(path)
				if code != http.StatusBadGateway || strings.Contains(text, "demo-bqdq7") {
					t.Errorf("%s: %d without data", path, code)
				}
				says(t, text, append(words, `role="alert"`, "Nothing was read yet.")...)
				time.Sleep(fresh)
				from.set(func(s *source) { s.err = nil })
				if code, text := b.get(path); code != http.StatusOK || strings.Contains(text, `role="alert"`) {
					t.Errorf("%s: %d after the error:\n%s", path, code, text)
				}
				time.Sleep(fresh)
				from.set(func(s *source) { s.err = err })
				code, text = b.get(path)
				if code != http.StatusOK {
					t.Errorf("%s: %d with old data", path, code)
				}
				says(t, text, append(words, "What you see below is old", "demo-bqdq7")...)
			}
		})
	}
}

func TestAClusterThatDoesNotExist(t *testing.T) {
	b := open(t, every())
	_, text := b.get("/clusters/default/gone")
	says(t, text, "It does not exist, or was deleted.", "Look for it in the list", `href="/base/"`)
	code, text := b.get("/nothing")
	if says(t, text, "There is no such page."); code != http.StatusNotFound {
		t.Errorf("%d", code)
	}
	_, text = open(t, &source{}).get("/")
	says(t, text, "No EtcdClusters found in All namespaces.")
}

// TestOnlyFailedConnectionIsNetwork: only a failed connection is a network problem.
// The client of Kubernetes wraps each error of a request in an *url.Error.
func TestOnlyFailedConnectionIsNetwork(t *testing.T) {
	const network = "The API server cannot be reached."
	for err, want := range map[error]bool{
		errors.New("getting credentials: exec: executable login failed with exit code 1"): false,
		x509.UnknownAuthorityError{}:                    false,
		&net.OpError{Op: "dial", Err: errors.New("no")}: true,
		&net.DNSError{Err: "no such host"}:              true,
		os.ErrDeadlineExceeded:                          true,
	} {
		got := problemOf(&url.Error{Op: "Get", URL: "https://192.0.2.1", Err: err})
		if strings.HasPrefix(got.What, network) != want {
			t.Errorf("%v: %q", err, got.What)
		}
	}
}

func TestTheTitleOfOldDataSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := every()
		b := open(t, from)
		b.get("/clusters/serving/demo")
		time.Sleep(fresh)
		from.set(func(s *source) { s.err = errors.New("no") })
		_, text := b.get("/clusters/serving/demo")
		says(t, text, "<title>? old serving/demo - druid</title>")
		if got := b.ask(http.MethodHead, b.server.address("/live/fleet")); got.code != http.StatusOK || got.text != "" {
			t.Errorf("HEAD of a stream: %+v", got)
		}
	})
}
