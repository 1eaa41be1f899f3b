package store

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const fullConfig = `{"s3": {
	"bucket": "backups", "prefix": "clusters/eu", "region": "eu-west-1", "endpoint": "https://s3.example.com:9000", "pathStyle": true,
	"credentialsDir": "/run/credentials", "caBundle": "/run/ca/ca.crt", "checksum": "WhenRequired",
	"encryption": {"mode": "KMS", "kmsKeyID": "alias/backups"}, "objectLock": {"mode": "Compliance", "days": 30}
}, "clientEncryption": {"keysDir": "/run/keys"}}`

func TestParseConfigReadsEveryField(t *testing.T) {
	got, err := ParseConfig([]byte(fullConfig))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{S3: &S3{
		Bucket: "backups", Prefix: "clusters/eu", Region: "eu-west-1", Endpoint: "https://s3.example.com:9000", PathStyle: true,
		CredentialsDir: "/run/credentials", CABundle: "/run/ca/ca.crt", Checksum: ChecksumWhenRequired,
		Encryption: &Encryption{Mode: EncryptionKMS, KMSKeyID: "alias/backups"}, ObjectLock: &ObjectLock{Mode: LockCompliance, Days: 30},
	}, ClientEncryption: &ClientEncryption{KeysDir: "/run/keys"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parsed (-want +got):\n%s", diff)
	}
	written, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseConfig(written); err != nil || !cmp.Equal(got, again) {
		t.Errorf("written and parsed again: %+v, %v", again, err)
	}
}

func TestParseConfigReportsWhatIsWrong(t *testing.T) {
	s3 := func(fields string) string { return `{"s3": {"bucket": "b", "region": "r", ` + fields + `}}` }
	for name, c := range map[string]struct{ config, says string }{
		"nothing":               {`{}`, "neither s3 nor directory is set"},
		"both":                  {`{"s3": {"bucket": "b", "region": "r"}, "directory": {"path": "/d"}}`, "set only one"},
		"no JSON":               {`s3: {}`, "configuration"},
		"two values":            {`{"directory": {"path": "/d"}} {}`, "there is data after"},
		"a misspelt field":      {s3(`"encyption": {"mode": "AES256"}`), "encyption"},
		"no path":               {`{"directory": {}}`, "directory.path"},
		"a relative path":       {`{"directory": {"path": "backups"}}`, "not absolute"},
		"keys that are nowhere": {`{"directory": {"path": "/d"}, "clientEncryption": {}}`, "clientEncryption.keysDir is empty"},
		"keys of no place":      {`{"directory": {"path": "/d"}, "clientEncryption": {"keysDir": "keys"}}`, "not absolute"},
		"no bucket":             {`{"s3": {"region": "r"}}`, "s3.bucket"},
		"a path as bucket":      {`{"s3": {"bucket": "b/prefix", "region": "r"}}`, "s3.prefix"},
		"no region":             {`{"s3": {"bucket": "b"}}`, "us-east-1"},
		"a prefix with slash":   {s3(`"prefix": "/p"`), "s3.prefix"},
		"a long prefix":         {s3(`"prefix": "` + strings.Repeat("p/", 150) + `p"`), "at most 255"},
		"a host as endpoint":    {s3(`"endpoint": "s3.example.com"`), "https://"},
		"a query as endpoint":   {s3(`"endpoint": "https://s3.example.com?x=y"`), "remove the rest"},
		"a secret as endpoint":  {s3(`"endpoint": "https://u:p@s3.example.com"`), "remove the rest"},
		"two identities":        {s3(`"credentialsDir": "/a", "credentialsFile": "/b"`), "set only one"},
		"relative credentials":  {s3(`"credentialsDir": "a"`), "not absolute"},
		"a relative bundle":     {s3(`"caBundle": "a"`), "not absolute"},
		"unknown checksum":      {s3(`"checksum": "Never"`), "WhenSupported or WhenRequired"},
		"unknown encryption":    {s3(`"encryption": {"mode": "ROT13"}`), "AES256, KMS or CustomerKey"},
		"a key without KMS":     {s3(`"encryption": {"mode": "AES256", "kmsKeyID": "k"}`), "only for mode KMS"},
		"a file without mode":   {s3(`"encryption": {"mode": "AES256", "keyFile": "/k"}`), "only for mode CustomerKey"},
		"no key file":           {s3(`"encryption": {"mode": "CustomerKey"}`), "keyFile is empty"},
		"a key in plain":        {s3(`"endpoint": "http://s", "encryption": {"mode": "CustomerKey", "keyFile": "/k"}`), "https"},
		"unknown lock":          {s3(`"objectLock": {"mode": "Firm", "days": 1}`), "Governance or Compliance"},
		"no days":               {s3(`"objectLock": {"mode": "Governance"}`), "days is 0"},
		"too many days":         {s3(`"objectLock": {"mode": "Governance", "days": 36501}`), "36500"},
	} {
		if _, err := ParseConfig([]byte(c.config)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want ErrInvalid that says %q", name, err, c.says)
		}
	}
}

func TestKeysAndPrefixes(t *testing.T) {
	segment, key := strings.Repeat("s", maxSegment), strings.Repeat("k/", maxKey/2-1)+"kk"
	for _, good := range []string{"a", "a/b", "A-1_z.y/x", "full/0000000000000001-1700000000000.snap.zst", segment, key, "a..b", "-", "_"} {
		if err := CheckKey(good); err != nil {
			t.Errorf("key %q: %v", good, err)
		}
		for _, prefix := range []string{good, good + "/"} {
			if err := CheckPrefix(prefix); err != nil {
				t.Errorf("prefix %q: %v", prefix, err)
			}
		}
	}
	for _, bad := range []string{"/", "/a", "a//b", "..", "../a", "a/..", ".a", "a/.b", "a b", "a\n", "é", `a\b`, "a+b", segment + "s", key + "k"} {
		if err := CheckKey(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("key %q: %v, want ErrInvalid", bad, err)
		}
		if err := CheckPrefix(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("prefix %q: %v, want ErrInvalid", bad, err)
		}
	}
	if err := CheckPrefix(""); err != nil {
		t.Errorf("the empty prefix: %v", err)
	}
	if err := CheckKey("a/"); !errors.Is(err, ErrInvalid) {
		t.Errorf("a prefix as key: %v, want ErrInvalid", err)
	}
}

func TestAURINamesTheObject(t *testing.T) {
	for want, c := range map[string]Config{
		"s3://bucket/demo/full/7":     {S3: &S3{Bucket: "bucket"}},
		"s3://bucket/a/b/demo/full/7": {S3: &S3{Bucket: "bucket", Prefix: "a/b"}},
		"dir:///backups/demo/full/7":  {Directory: &Directory{Path: "/backups"}},
		"":                            {},
	} {
		if got := c.URI("demo/full/7"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
