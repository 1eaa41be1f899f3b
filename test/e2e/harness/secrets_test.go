package harness

import (
	"slices"
	"testing"
)

func TestTheSearchFindsSecretsInEachForm(t *testing.T) {
	const word = "pass\"word/+ä?"
	for name, text := range map[string]string{
		"as it is":  "user app with pass\"word/+ä? was added",
		"in base64": `{"data":{"app":"cGFzcyJ3b3JkLyvDpD8="}}`,
		"in JSON":   `{"msg":"pass\"word/+ä?"}`,
		"in a URL":  "http://app:pass%22word%2F%2B%C3%A4%3F@etcd",
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(secrets{"Secret a/b": word}, texts{"the log": text, "another": "nothing"}); !slices.Equal(got, []string{"Secret a/b is in the log"}) {
				t.Errorf("found %q", got)
			}
		})
	}
}

// TestSecretsShowOnlyPublicParts: only certificates and names of keys are public.
func TestSecretsShowOnlyPublicParts(t *testing.T) {
	for name, c := range map[string]struct {
		key, value string
		want       bool
	}{
		"a certificate":         {"tls.crt", "-----BEGIN CERTIFICATE-----\nMIIB", true},
		"a private key":         {"tls.key", "-----BEGIN PRIVATE KEY-----\nMIIB", false},
		"both in one file":      {"tls.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----BEGIN PRIVATE KEY-----\n", false},
		"the ID of a key of S3": {"accessKeyID", "AKIA0123456789", true},
		"a password":            {"app", "a-password", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := public(c.key, []byte(c.value)); got != c.want {
				t.Errorf("public: %t, want %t", got, c.want)
			}
		})
	}
}
