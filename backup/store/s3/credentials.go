package s3

import (
	"bytes"
	"context"
	"crypto/md5" // S3 names a customer key by its MD5
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-druid/druid/backup/store"
)

// fileCredentials returns a provider that reads the configured files for each request. A rotation takes effect
// immediately, and no copy of a secret remains in memory. nil means the ambient identity. Reading three small files
// costs less than signing.
func fileCredentials(c store.S3) aws.CredentialsProvider {
	switch {
	case c.CredentialsDir != "":
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return readDir(c.CredentialsDir) })
	case c.CredentialsFile != "":
		return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) { return readFile(ctx, c.CredentialsFile) })
	}
	return nil
}

// Names of the files in a mounted Secret: ours, and those of the environment variables.
var (
	accessKeyNames    = []string{"accessKeyID", "AWS_ACCESS_KEY_ID"}
	secretKeyNames    = []string{"secretAccessKey", "AWS_SECRET_ACCESS_KEY"}
	sessionTokenNames = []string{"sessionToken", "AWS_SESSION_TOKEN"}
)

// readDir reads a mounted Secret. The kubelet replaces all of its files atomically by a link, which readDir follows
// once.
func readDir(dir string) (aws.Credentials, error) {
	if data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		dir = data
	}
	key, err := readOneOf(dir, accessKeyNames)
	if err != nil {
		return aws.Credentials{}, err
	}
	secret, err := readOneOf(dir, secretKeyNames)
	if err != nil {
		return aws.Credentials{}, err
	}
	token, err := readOneOf(dir, sessionTokenNames)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return aws.Credentials{}, err
	}
	return checked(aws.Credentials{AccessKeyID: key, SecretAccessKey: secret, SessionToken: token, Source: dir})
}

func readOneOf(dir string, names []string) (string, error) {
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", credentialsError{err}
		}
	}
	return "", credentialsError{fmt.Errorf("%s has no file %s: %w", dir, strings.Join(names, " or "), fs.ErrNotExist)}
}

func readFile(ctx context.Context, file string) (aws.Credentials, error) {
	c, err := awsconfig.LoadSharedConfigProfile(ctx, awsconfig.DefaultSharedConfigProfile, func(o *awsconfig.LoadSharedConfigOptions) {
		o.CredentialsFiles = []string{file}
		o.ConfigFiles = []string{}
	})
	if err != nil {
		return aws.Credentials{}, credentialsError{fmt.Errorf("%s: %w", file, err)}
	}
	c.Credentials.Source = file
	return checked(c.Credentials)
}

func checked(c aws.Credentials) (aws.Credentials, error) {
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return aws.Credentials{}, credentialsError{fmt.Errorf("%s: the access key ID or the secret access key is empty", c.Source)}
	}
	return c, nil
}

// credentialsError is not repaired by a retry.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// RetryableError is called by the SDK.
func (credentialsError) RetryableError() bool { return false }

// customerKeySize in bytes, for AES-256.
const customerKeySize = 32

// encryption is what is requested for each object, in terms of the protocol. nil fields request nothing.
type encryption struct {
	algorithm         types.ServerSideEncryption
	kmsKeyID          *string
	customerAlgorithm *string
	customerKey       *string
	customerKeyMD5    *string
}

// loadEncryption returns an empty encryption if none is configured.
func loadEncryption(c *store.Encryption) (*encryption, error) {
	switch {
	case c == nil:
		return &encryption{}, nil
	case c.Mode == store.EncryptionAES256:
		return &encryption{algorithm: types.ServerSideEncryptionAes256}, nil
	case c.Mode == store.EncryptionKMS:
		e := &encryption{algorithm: types.ServerSideEncryptionAwsKms}
		if c.KMSKeyID != "" {
			e.kmsKeyID = aws.String(c.KMSKeyID)
		}
		return e, nil
	}
	key, err := readCustomerKey(c.KeyFile)
	if err != nil {
		return nil, err
	}
	sum := md5.Sum(key)
	return &encryption{
		customerAlgorithm: aws.String(string(types.ServerSideEncryptionAes256)),
		customerKey:       aws.String(base64.StdEncoding.EncodeToString(key)),
		customerKeyMD5:    aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	}, nil
}

func readCustomerKey(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: s3.encryption.keyFile: %w", store.ErrInvalid, err)
	}
	if len(content) == customerKeySize {
		return content, nil
	}
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(content)))
	if err != nil || len(key) != customerKeySize {
		return nil, fmt.Errorf("%w: s3.encryption.keyFile %s: want %d bytes, raw or in base64", store.ErrInvalid, file, customerKeySize)
	}
	return key, nil
}

func (e *encryption) asked() bool { return e.algorithm != "" || e.customerKey != nil }

// confirmation is what a response says about the encryption of an object.
type confirmation struct {
	algorithm                types.ServerSideEncryption
	kmsKeyID, customerKeyMD5 *string
}

// confirmed checks that the response has what was requested, because some stores ignore such a request.
func (e *encryption) confirmed(c confirmation) error {
	switch {
	case e.customerKey != nil && aws.ToString(c.customerKeyMD5) != *e.customerKeyMD5:
		return fmt.Errorf("%w: the store confirmed no customer key or another one: it does not support customer keys", store.ErrUnconfirmed)
	case e.algorithm != c.algorithm && e.algorithm != "":
		return fmt.Errorf("%w: requested %s, but the store confirmed %q: it ignores encryption or has no key service",
			store.ErrUnconfirmed, e.algorithm, c.algorithm)
	case e.kmsKeyID != nil && !sameKMSKey(*e.kmsKeyID, aws.ToString(c.kmsKeyID)):
		return fmt.Errorf("%w: requested key %s, but the store confirmed %q", store.ErrUnconfirmed, *e.kmsKeyID, aws.ToString(c.kmsKeyID))
	}
	return nil
}

// sameKMSKey compares as far as possible: the response is an ARN or an ID, and an alias may stand for any of them.
func sameKMSKey(asked, answered string) bool {
	if strings.Contains(asked, "alias/") {
		return answered != ""
	}
	id := func(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
	return id(asked) == id(answered)
}
