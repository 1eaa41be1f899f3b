package store

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// DefaultRegion is the region of a bucket without a configured region, and the default of the API. Most stores without
// regions accept it.
const DefaultRegion = "us-east-1"

// S3 is a store in a bucket.
type S3 struct {
	Bucket string `json:"bucket"`
	// Prefix precedes each key in the bucket, without slashes at its ends. Keys do not include it.
	Prefix string `json:"prefix,omitempty"`
	// Region of the bucket. For stores without regions, use the value from their documentation, usually DefaultRegion.
	Region string `json:"region"`
	// Endpoint is the URL of a store that is not AWS, or of a private endpoint of AWS.
	Endpoint string `json:"endpoint,omitempty"`
	// PathStyle puts the bucket into the path of the URL and not into the host name.
	PathStyle bool `json:"pathStyle,omitempty"`
	// CredentialsDir is a mounted Secret with accessKeyID, secretAccessKey and optionally sessionToken, or the same
	// under their environment names (AWS_ACCESS_KEY_ID, …). CredentialsFile is a file in the format of
	// ~/.aws/credentials. Both are read for each request. Without either, the identity comes from the environment, web
	// identity, Pod identity or node.
	CredentialsDir  string `json:"credentialsDir,omitempty"`
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// CABundle is a file of PEM certificates to trust instead of those of the system. It is read for each connection.
	CABundle   string      `json:"caBundle,omitempty"`
	Checksum   Checksum    `json:"checksum,omitempty"`
	Encryption *Encryption `json:"encryption,omitempty"`
	ObjectLock *ObjectLock `json:"objectLock,omitempty"`
}

// Checksum selects when the checksums of S3 are sent and verified.
type Checksum string

// Names as in AWS' own configuration (request_checksum_calculation).
const (
	// ChecksumWhenSupported sends and verifies CRC32C. It is the meaning of an empty value.
	ChecksumWhenSupported Checksum = "WhenSupported"
	// ChecksumWhenRequired is for stores that reject unknown checksums. It sends only the MD5 of each part, which all
	// stores support.
	ChecksumWhenRequired Checksum = "WhenRequired"
)

// Encryption by the store. A Put fails with ErrUnconfirmed unless the store confirms the encryption before the first
// byte of the object is sent.
type Encryption struct {
	Mode EncryptionMode `json:"mode"`
	// KMSKeyID is an ID, ARN or alias. Empty means the default key of the store. Only for mode KMS.
	KMSKeyID string `json:"kmsKeyID,omitempty"`
	// KeyFile holds 32 bytes, raw or in base64. Only for mode CustomerKey. Objects that were put with another key
	// cannot be read.
	KeyFile string `json:"keyFile,omitempty"`
}

// EncryptionMode selects whose keys are used.
type EncryptionMode string

// The modes of S3's server-side encryption.
const (
	EncryptionAES256      EncryptionMode = "AES256"
	EncryptionKMS         EncryptionMode = "KMS"
	EncryptionCustomerKey EncryptionMode = "CustomerKey"
)

// ObjectLock prevents the deletion of each object for a number of days after its Put. A Put fails with ErrUnconfirmed
// if the bucket does not have object lock enabled.
type ObjectLock struct {
	Mode LockMode `json:"mode"`
	Days int      `json:"days"`
}

// LockMode selects who can remove a lock.
type LockMode string

// The modes of S3's object lock.
const (
	// LockGovernance can be removed with a special permission.
	LockGovernance LockMode = "Governance"
	// LockCompliance cannot be removed.
	LockCompliance LockMode = "Compliance"
)

// maxLockDays is the limit of S3: 100 years.
const maxLockDays = 36_500

func (s *S3) problems() []string {
	var problems []string
	if s.Bucket == "" {
		problems = append(problems, "s3.bucket is empty: set the name of the bucket")
	} else if strings.ContainsAny(s.Bucket, "/: ") {
		problems = append(problems, fmt.Sprintf("s3.bucket %q is not the name of a bucket: set a path in s3.prefix, a host in s3.endpoint", s.Bucket))
	}
	if s.Region == "" {
		problems = append(problems, "s3.region is empty: set the region of the bucket; most stores without regions accept "+DefaultRegion)
	}
	if s.Prefix != "" {
		if err := CheckKey(s.Prefix); err != nil {
			problems = append(problems, fmt.Sprintf("s3.prefix: %v", err))
		} else if len(s.Prefix) > maxPrefix {
			problems = append(problems, fmt.Sprintf("s3.prefix has %d bytes, want at most %d", len(s.Prefix), maxPrefix))
		}
	}
	if s.CredentialsDir != "" && s.CredentialsFile != "" {
		problems = append(problems, "s3.credentialsDir and s3.credentialsFile are both set: set only one")
	}
	problems = absolute(problems, "s3.credentialsDir", s.CredentialsDir, false)
	problems = absolute(problems, "s3.credentialsFile", s.CredentialsFile, false)
	problems = absolute(problems, "s3.caBundle", s.CABundle, false)
	problems = append(problems, s.endpointProblems()...)
	return append(problems, s.optionProblems()...)
}

func (s *S3) endpointProblems() []string {
	if s.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return []string{fmt.Sprintf("s3.endpoint %q is not a URL: want https://host or https://host:port", s.Endpoint)}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return []string{"s3.endpoint has more than scheme, host, port and path: remove the rest"}
	case u.Scheme == "http" && s.Encryption != nil && s.Encryption.Mode == EncryptionCustomerKey:
		return []string{"s3.encryption.mode CustomerKey would send the key unencrypted: use an https endpoint"}
	}
	return nil
}

func (s *S3) optionProblems() []string {
	var problems []string
	switch s.Checksum {
	case "", ChecksumWhenSupported, ChecksumWhenRequired:
	default:
		problems = append(problems, fmt.Sprintf("s3.checksum %q: want WhenSupported or WhenRequired", s.Checksum))
	}
	if s.Encryption != nil {
		problems = append(problems, s.Encryption.problems()...)
	}
	if l := s.ObjectLock; l != nil {
		if l.Mode != LockGovernance && l.Mode != LockCompliance {
			problems = append(problems, fmt.Sprintf("s3.objectLock.mode %q: want Governance or Compliance", l.Mode))
		}
		if l.Days < 1 || l.Days > maxLockDays {
			problems = append(problems, fmt.Sprintf("s3.objectLock.days is %d: want 1 to %d", l.Days, maxLockDays))
		}
	}
	return problems
}

func (e Encryption) problems() []string {
	var problems []string
	switch e.Mode {
	case EncryptionAES256, EncryptionKMS:
	case EncryptionCustomerKey:
		problems = absolute(problems, "s3.encryption.keyFile", e.KeyFile, true)
	default:
		problems = append(problems, fmt.Sprintf("s3.encryption.mode %q: want AES256, KMS or CustomerKey", e.Mode))
	}
	if e.KMSKeyID != "" && e.Mode != EncryptionKMS {
		problems = append(problems, "s3.encryption.kmsKeyID is only for mode KMS: remove it")
	}
	if e.KeyFile != "" && e.Mode != EncryptionCustomerKey {
		problems = append(problems, "s3.encryption.keyFile is only for mode CustomerKey: remove it")
	}
	return problems
}

var s3Row = kindRow{
	name: "s3",
	in: func(c Config) kind {
		if c.S3 == nil {
			return nil
		}
		return c.S3
	},
	scheme: "s3", form: "s3://bucket/prefix?region=…",
	example: "s3://bucket/prefix?region=eu-central-1", more: "more parameters: endpoint, pathStyle=true, checksum=WhenRequired, caBundle",
	credentials: `Credentials of S3 are those of AWS (environment, ~/.aws, the identity of a Pod or a node), or --credentials: a file like
~/.aws/credentials, or a directory like a mounted Secret.
`,
	parse: parseS3URL,
}

func (s *S3) uri(key string) string { return "s3://" + path.Join(s.Bucket, s.Prefix, key) }

func (s *S3) secrets() []string {
	paths := []string{s.CredentialsDir, s.CABundle}
	if s.Encryption != nil {
		paths = append(paths, s.Encryption.KeyFile)
	}
	return paths
}

func (s *S3) useCredentials(path string, isDir bool) error {
	s.CredentialsDir, s.CredentialsFile = "", path
	if isDir {
		s.CredentialsDir, s.CredentialsFile = path, ""
	}
	return nil
}

func parseS3URL(u *url.URL, env func(string) string) (Config, error) {
	c := S3{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Region: env("AWS_REGION")}
	if c.Region == "" {
		c.Region = env("AWS_DEFAULT_REGION")
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, fmt.Errorf("%w: parameters of %s: %w", ErrInvalid, u.Redacted(), err)
	}
	for name, values := range parameters {
		value := values[len(values)-1]
		switch name {
		case "region":
			c.Region = value
		case "endpoint":
			c.Endpoint = value
		case "caBundle":
			c.CABundle = value
		case "checksum":
			c.Checksum = Checksum(value)
		case "pathStyle":
			if value != "true" && value != "false" {
				return Config{}, fmt.Errorf("%w: pathStyle=%s: want true or false", ErrInvalid, value)
			}
			c.PathStyle = value == "true"
		default:
			return Config{}, fmt.Errorf("%w: parameter %q is unknown: want region, endpoint, pathStyle, checksum or caBundle; for other settings, use a JSON file",
				ErrInvalid, name)
		}
	}
	switch {
	case c.Region == "" && c.Endpoint != "":
		c.Region = DefaultRegion
	case c.Region == "":
		return Config{}, fmt.Errorf("%w: no region: add ?region=… to the URL, or set AWS_REGION", ErrInvalid)
	}
	return Config{S3: &c}, nil
}
