package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// filled sets every field to a value other than its default, so that the test finds a field without a flag.
func filled(t *testing.T) Config {
	t.Helper()
	var c Config
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("/a " + v.Type().Field(i).Name + "=\"x\"")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(1_000_000 + i))
		default:
			t.Fatalf("field %s has a kind that no flag can carry", v.Type().Field(i).Name)
		}
	}
	return c
}

func TestParseReadsWhatArgsWrote(t *testing.T) {
	for name, c := range map[string]Config{
		"the defaults":           Default(),
		"every field set":        filled(t),
		"one option of etcd set": func() Config { c := Default(); c.ElectionTimeout = 5 * time.Second; return c }(),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.Args())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, c); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

func TestArgsNameEveryOptionThatIsSet(t *testing.T) {
	if got, want := len(filled(t).Args()), reflect.TypeFor[Config]().NumField(); got != want {
		t.Errorf("%d flags for %d fields", got, want)
	}
}

func valid() Config {
	c := Default()
	c.Namespace, c.Cluster, c.ClusterUID = "default", "demo", "c-uid"
	c.Member, c.PodUID, c.PeerService, c.EtcdVersion = "demo-abcde", "p-uid", "demo-peer", "3.6.16"
	return c
}

func TestValidateNamesFieldAndRange(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string // empty: valid
	}{
		"a whole configuration is valid":    {func(*Config) {}, ""},
		"no member":                         {func(c *Config) { c.Member = "" }, "--member is empty"},
		"a relative volume":                 {func(c *Config) { c.VolumePath = "data" }, `--volume is "data", want an absolute path`},
		"an unknown minor":                  {func(c *Config) { c.EtcdVersion = "3.4.9" }, "want 3.5.x, 3.6.x or 3.7.x"},
		"a port out of range":               {func(c *Config) { c.PeerPort = 70000 }, "--peer-port is 70000, want 1 to 65535"},
		"two listeners on one port":         {func(c *Config) { c.AgentPort = 2379 }, "--agent-port is 2379, the same as --client-port"},
		"a negative quota":                  {func(c *Config) { c.QuotaBackendBytes = -1 }, "--quota-backend-bytes is -1"},
		"a compaction mode of another kind": {func(c *Config) { c.AutoCompactionMode = "daily" }, "want periodic or revision"},
		"an election timeout too short":     {func(c *Config) { c.ElectionTimeout = 400 * time.Millisecond }, "--election-timeout is 400ms"},
		"an election timeout too long":      {func(c *Config) { c.ElectionTimeout = time.Minute }, "to 50s"},
		"a restore that is no JSON":         {func(c *Config) { c.Restore = "{" }, "--restore: "},
		"a restore without a prefix":        {func(c *Config) { c.Restore = "{}" }, "--restore has no prefix"},
		"a restore to two targets": {func(c *Config) { c.Restore = `{"prefix":"a/b","revision":1,"name":"x"}` },
			"more than one of revision, time and name"},
		"a restore that it does not know":    {func(c *Config) { c.Restore = `{"prefix":"a/b","later":"x"}` }, `unknown field "later"`},
		"a restore of a file of a cluster":   {func(c *Config) { c.Restore = `{"prefix":"a/b","file":"x"}` }, "--restore: a file cannot be combined"},
		"a restore of a file to a revision":  {func(c *Config) { c.Restore = `{"file":"x","revision":7}` }, "--restore: a file cannot be combined"},
		"a restore of a file":                {func(c *Config) { c.Restore = `{"file":"x"}` }, ""},
		"a restore to a moment":              {func(c *Config) { c.Restore = `{"prefix":"a/b","time":"2026-11-21T18:54:00Z"}` }, ""},
		"a heartbeat finer than etcd's unit": {func(c *Config) { c.HeartbeatInterval = 1500 * time.Microsecond }, "a multiple of 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			c := valid()
			test.change(&c)
			err := c.Validate()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want none", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestFormerCommandLinesUnderstood: command lines of former releases are understood.
// A Pod keeps its command line while it exists, but its agent can change. So the agent must accept every command line
// of an earlier release.
func TestFormerCommandLinesUnderstood(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "commandlines", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("command lines are in %v (%v)", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(strings.Fields(string(raw)))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestJoinEndpoints(t *testing.T) {
	for name, test := range map[string]struct {
		join string
		want []string
		err  string
	}{
		"none":                 {"", nil, ""},
		"two":                  {JoinOf([]string{"http://a:2379", "http://[fd00::1]:2379"}), []string{"http://a:2379", "http://[fd00::1]:2379"}, ""},
		"TLS":                  {"https://a:2379", nil, "not a URL like http://host:2379"},
		"without a port":       {"http://a", nil, "not a URL like http://host:2379"},
		"an empty one":         {"http://a:2379,", nil, "not a URL like http://host:2379"},
		"no URL":               {"a:2379", nil, "not a URL like http://host:2379"},
		"a URL without a host": {"http://:2379", nil, "not a URL like http://host:2379"},
	} {
		t.Run(name, func(t *testing.T) {
			c := valid()
			c.Join = test.join
			got, err := c.JoinEndpoints()
			if !slices.Equal(got, test.want) || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, %v", got, err)
			}
			if valid := c.Validate(); (valid == nil) != (test.err == "") {
				t.Errorf("the configuration: %v", valid)
			}
		})
	}
	for name, test := range map[string]struct{ join, dir, err string }{
		"TLS":                      {"https://a:2379", "/run/join", ""},
		"plain text with a Secret": {"http://a:2379", "/run/join", "not a URL like https://host:2379"},
		"a Secret alone":           {"", "/run/join", "--join-tls is set without --join"},
		"a relative directory":     {"https://a:2379", "join", "want an absolute path"},
	} {
		c := valid()
		c.Join, c.JoinTLS = test.join, test.dir
		if err := c.Validate(); (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", name, err, test.err)
		}
	}
	c := valid()
	c.Join, c.Restore = "http://a:2379", `{"prefix":"a/b"}`
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--join and --restore are both set") {
		t.Errorf("to join and to restore at once: %v", err)
	}
}
