package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
)

// Config says where backups are, and whether they are sealed. Exactly one kind is set. It holds no secret: credentials and keys stand in files, which
// are read again when they are used.
type Config struct {
	S3        *S3        `json:"s3,omitempty"`
	Directory *Directory `json:"directory,omitempty"`
	// Sealing encrypts objects before they are sent; nil: it does not.
	Sealing *Sealing `json:"sealing,omitempty"`
}

// Sealing is encryption by ourselves: anyone who reads the store without a key learns names, sizes and times alone.
type Sealing struct {
	// KeysDir is a mounted Secret. Each entry is a key, named by its ID, of 32 bytes, or those in base64; entry current has the
	// ID of the one that seals. It is read for each object.
	KeysDir string `json:"keysDir"`
}

// Directory is a store in a file system that all agents of the cluster mount.
type Directory struct {
	// Path is absolute, and exists: what is not mounted must not be made.
	Path string `json:"path"`
}

// DefaultRegion is the region of a bucket without a configured region, and the default of the API. Most stores that have no
// regions accept it.
const DefaultRegion = "us-east-1"

// S3 is a store in a bucket.
type S3 struct {
	Bucket string `json:"bucket"`
	// Prefix stands before each key in the bucket, without slashes at its ends; keys do not show it.
	Prefix string `json:"prefix,omitempty"`
	// Region of the bucket; for stores without regions, the value from their documentation, usually DefaultRegion.
	Region string `json:"region"`
	// Endpoint is the URL of a store that is not AWS, or of a private way to AWS.
	Endpoint string `json:"endpoint,omitempty"`
	// PathStyle puts the bucket into the URL's path and not into the host name.
	PathStyle bool `json:"pathStyle,omitempty"`
	// CredentialsDir is a mounted Secret with accessKeyID and secretAccessKey, perhaps sessionToken, or the same under
	// their names in the environment (AWS_ACCESS_KEY_ID, …). CredentialsFile is a file in the format of ~/.aws/credentials.
	// Both are read for each request. With neither the identity is ambient: environment, web identity, Pod identity, node.
	CredentialsDir  string `json:"credentialsDir,omitempty"`
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// CABundle is a file of PEM certificates that are trusted instead of the system's, read at each connection.
	CABundle   string      `json:"caBundle,omitempty"`
	Checksum   Checksum    `json:"checksum,omitempty"`
	Encryption *Encryption `json:"encryption,omitempty"`
	ObjectLock *ObjectLock `json:"objectLock,omitempty"`
}

// Checksum says when S3's checksums are sent and verified.
type Checksum string

// Names as in AWS' own configuration (request_checksum_calculation).
const (
	// ChecksumWhenSupported sends and verifies CRC32C. It is what an empty value means.
	ChecksumWhenSupported Checksum = "WhenSupported"
	// ChecksumWhenRequired suits stores that refuse what they do not know: MD5 of each part is sent, as since ever.
	ChecksumWhenRequired Checksum = "WhenRequired"
)

// Encryption by the store. A Put fails with ErrUnconfirmed, before a byte of the object is sent, unless the store
// confirms it.
type Encryption struct {
	Mode EncryptionMode `json:"mode"`
	// KMSKeyID is an ID, ARN or alias; empty means the store's default key. Only for mode KMS.
	KMSKeyID string `json:"kmsKeyID,omitempty"`
	// KeyFile holds 32 bytes, or those in base64. Only for mode CustomerKey. Objects put under another key are unreadable.
	KeyFile string `json:"keyFile,omitempty"`
}

// EncryptionMode says whose keys are used.
type EncryptionMode string

// The modes of S3's server-side encryption.
const (
	EncryptionAES256      EncryptionMode = "AES256"
	EncryptionKMS         EncryptionMode = "KMS"
	EncryptionCustomerKey EncryptionMode = "CustomerKey"
)

// ObjectLock keeps each object from being deleted for a number of days after it was put. A Put fails with ErrUnconfirmed
// where the bucket has no object lock enabled.
type ObjectLock struct {
	Mode LockMode `json:"mode"`
	Days int      `json:"days"`
}

// LockMode says who may lift a lock.
type LockMode string

// The modes of S3's object lock.
const (
	// LockGovernance can be lifted by those with the right to.
	LockGovernance LockMode = "Governance"
	// LockCompliance can be lifted by no one.
	LockCompliance LockMode = "Compliance"
)

// maxLockDays is S3's own limit: 100 years.
const maxLockDays = 36_500

// ParseConfig reads a Config from JSON and validates it. A field that it does not know is an error: ignoring one could
// mean to store in plain what was to be encrypted.
func ParseConfig(b []byte) (Config, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var c Config
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("%w: configuration of the backup store: %w", ErrInvalid, err)
	}
	if d.More() {
		return Config{}, fmt.Errorf("%w: configuration of the backup store: more than one JSON value", ErrInvalid)
	}
	return c, c.Validate()
}

// Validate reports all that is wrong with c, as sentences joined, or nil. It asks no one and reads no file.
func (c Config) Validate() error {
	var problems []string
	switch {
	case c.S3 != nil && c.Directory != nil:
		problems = append(problems, "both s3 and directory are set: choose one")
	case c.S3 != nil:
		problems = c.S3.problems()
	case c.Directory != nil:
		problems = absolute(nil, "directory.path", c.Directory.Path, true)
	default:
		problems = append(problems, "neither s3 nor directory is set: choose one")
	}
	if c.Sealing != nil {
		problems = absolute(problems, "sealing.keysDir", c.Sealing.KeysDir, true)
	}
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%w: %s", ErrInvalid, p))
	}
	return errors.Join(errs...)
}

func (s S3) problems() []string {
	var problems []string
	if s.Bucket == "" {
		problems = append(problems, "s3.bucket is empty: name the bucket")
	} else if strings.ContainsAny(s.Bucket, "/: ") {
		problems = append(problems, fmt.Sprintf("s3.bucket %q is no name of a bucket: put a path into s3.prefix, a host into s3.endpoint", s.Bucket))
	}
	if s.Region == "" {
		problems = append(problems, "s3.region is empty: name the bucket's region; stores without regions mostly want "+DefaultRegion)
	}
	if s.Prefix != "" {
		if err := CheckKey(s.Prefix); err != nil {
			problems = append(problems, fmt.Sprintf("s3.prefix: %v", err))
		} else if len(s.Prefix) > maxPrefix {
			problems = append(problems, fmt.Sprintf("s3.prefix has %d bytes: at most %d leave room for keys", len(s.Prefix), maxPrefix))
		}
	}
	if s.CredentialsDir != "" && s.CredentialsFile != "" {
		problems = append(problems, "both s3.credentialsDir and s3.credentialsFile are set: choose one")
	}
	problems = absolute(problems, "s3.credentialsDir", s.CredentialsDir, false)
	problems = absolute(problems, "s3.credentialsFile", s.CredentialsFile, false)
	problems = absolute(problems, "s3.caBundle", s.CABundle, false)
	problems = append(problems, s.endpointProblems()...)
	return append(problems, s.optionProblems()...)
}

func (s S3) endpointProblems() []string {
	if s.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return []string{fmt.Sprintf("s3.endpoint %q is no URL: write https://host or https://host:port", s.Endpoint)}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return []string{"s3.endpoint has more than scheme, host, port and path: leave the rest out"}
	case u.Scheme == "http" && s.Encryption != nil && s.Encryption.Mode == EncryptionCustomerKey:
		return []string{"s3.encryption.mode CustomerKey would send the key in plain: use an https endpoint"}
	}
	return nil
}

func (s S3) optionProblems() []string {
	var problems []string
	switch s.Checksum {
	case "", ChecksumWhenSupported, ChecksumWhenRequired:
	default:
		problems = append(problems, fmt.Sprintf("s3.checksum %q: choose WhenSupported or WhenRequired", s.Checksum))
	}
	if s.Encryption != nil {
		problems = append(problems, s.Encryption.problems()...)
	}
	if l := s.ObjectLock; l != nil {
		if l.Mode != LockGovernance && l.Mode != LockCompliance {
			problems = append(problems, fmt.Sprintf("s3.objectLock.mode %q: choose Governance or Compliance", l.Mode))
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
		problems = append(problems, fmt.Sprintf("s3.encryption.mode %q: choose AES256, KMS or CustomerKey", e.Mode))
	}
	if e.KMSKeyID != "" && e.Mode != EncryptionKMS {
		problems = append(problems, "s3.encryption.kmsKeyID is only for mode KMS: leave it out")
	}
	if e.KeyFile != "" && e.Mode != EncryptionCustomerKey {
		problems = append(problems, "s3.encryption.keyFile is only for mode CustomerKey: leave it out")
	}
	return problems
}

func absolute(problems []string, field, path string, required bool) []string {
	switch {
	case path == "" && required:
		return append(problems, field+" is empty: give an absolute path")
	case path != "" && !filepath.IsAbs(path):
		return append(problems, fmt.Sprintf("%s %q is not absolute", field, path))
	}
	return problems
}

// URI of a key in the store, for people and their tools. It names no endpoint: that is the configuration's.
func (c Config) URI(key string) string {
	switch {
	case c.S3 != nil:
		return "s3://" + path.Join(c.S3.Bucket, c.S3.Prefix, key)
	case c.Directory != nil:
		return "dir://" + path.Join(c.Directory.Path, key)
	}
	return ""
}
