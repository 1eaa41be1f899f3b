package backup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
)

func TestStoresThatMakeNoSense(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	file := filepath.Join(t.TempDir(), "store.json")
	if err := os.WriteFile(file, []byte(`{"s4":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"none":                        {nil, "--store: invalid: empty"},
		"no file":                     {[]string{"--store", "no-such.json"}, "no such file or directory; want s3://"},
		"a file that is none":         {[]string{"--store", file}, `unknown field "s4"`},
		"another scheme":              {[]string{"--store", "gs://b"}, `"gs" is not a kind of store`},
		"no URL":                      {[]string{"--store", "s3://%"}, "want s3://"},
		"a directory with a host":     {[]string{"--store", "dir://mnt/backups"}, "three slashes"},
		"a directory not there":       {[]string{"--store", "dir:///no/such"}, "directory /no/such"},
		"a bucket without a region":   {[]string{"--store", "s3://b/p"}, "AWS_REGION"},
		"a bucket without a name":     {[]string{"--store", "s3:///p?region=r"}, "set the name of the bucket"},
		"a parameter not known":       {[]string{"--store", "s3://b/p?region=r&sse=x"}, `parameter "sse" is unknown`},
		"a parameter that is no bool": {[]string{"--store", "s3://b/p?region=r&pathStyle=1"}, "want true or false"},
		"a prefix with a slash":       {[]string{"--store", "dir://" + t.TempDir(), "--prefix", "ns/demo/"}, "remove the slash"},
		"a prefix that is none":       {[]string{"--store", "dir://" + t.TempDir(), "--prefix", "/ns"}, "the prefix of --store"},
		"credentials of a directory":  {[]string{"--store", "dir://" + t.TempDir(), "--credentials", file}, "remove --credentials"},
		"credentials not there":       {[]string{"--store", "s3://b?region=r", "--credentials", "no-such"}, "no-such"},
		"keys not there":              {[]string{"--store", "dir://" + t.TempDir(), "--encryption-keys", "no-such"}, "the keys of --store"},
		"keys that are a file":        {[]string{"--store", "dir://" + t.TempDir(), "--encryption-keys", file}, "is not a directory"},
		"another output":              {[]string{"--store", "dir://" + t.TempDir(), "-o", "yaml"}, "want table or json"},
	} {
		t.Run(name, func(t *testing.T) {
			_, code, failure := run(t, append([]string{"list"}, test.args...)...)
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			contains(t, failure, test.says)
		})
	}
	if _, code, failure := run(t, "list", "--store", "dir://"+t.TempDir()); code != 2 || !strings.Contains(failure, "check --store and --prefix") {
		t.Errorf("an empty directory: exit code %d, %q", code, failure)
	}
}

func TestStoresAreRead(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-west-1")
	path := t.TempDir()
	for raw, want := range map[string]store.S3{
		"s3://b": {Bucket: "b", Region: "eu-west-1"},
		"s3://b/p/q/?region=r&checksum=WhenRequired": {Bucket: "b", Prefix: "p/q", Region: "r", Checksum: store.ChecksumWhenRequired},
		"s3://b?endpoint=https://h:9000&pathStyle=true&caBundle=/ca.pem": {Bucket: "b", Region: "eu-west-1", Endpoint: "https://h:9000",
			PathStyle: true, CABundle: "/ca.pem"},
	} {
		c, err := parseStore(raw, path)
		want.CredentialsDir = path
		if err != nil || c.S3 == nil || *c.S3 != want {
			t.Errorf("%s is read as %+v, %v; want %+v", raw, c.S3, err, want)
		}
	}
	t.Setenv("AWS_REGION", "")
	if c, err := parseStore("s3://b?endpoint=https://h", ""); err != nil || c.S3.Region != store.DefaultRegion {
		t.Errorf("got %+v, %v; want the region of stores without", c.S3, err)
	}
}
