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

// fileCredentials returns what reads the configured files for each request, so that a rotation is seen at once and no copy
// of a secret outlives it; nil means the ambient identity. Three small files cost less than signing with them.
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

// readDir reads a mounted Secret. The kubelet changes all of its files at once by a link, which is followed once.
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
		return aws.Credentials{}, credentialsError{fmt.Errorf("%s: access key ID or secret access key is empty", c.Source)}
	}
	return c, nil
}

// credentialsError is one that no retry repairs.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// RetryableError is asked by the SDK.
func (credentialsError) RetryableError() bool { return false }

// customerKeySize in bytes, of AES-256.
const customerKeySize = 32

// encryption is what is asked for with each object, in the words of the protocol; nil members ask for nothing.
type encryption struct {
	algorithm         types.ServerSideEncryption
	kmsKeyID          *string
	customerAlgorithm *string
	customerKey       *string
	customerKeyMD5    *string
}

// loadEncryption returns an empty encryption where none is asked for.
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
		return nil, fmt.Errorf("%w: s3.encryption.keyFile %s: want %d bytes, or those in base64", store.ErrInvalid, file, customerKeySize)
	}
	return key, nil
}

func (e *encryption) asked() bool { return e.algorithm != "" || e.customerKey != nil }

// confirmation is what an answer says of the encryption of an object.
type confirmation struct {
	algorithm                types.ServerSideEncryption
	kmsKeyID, customerKeyMD5 *string
}

// confirmed reports whether the answer says what was asked for; there are stores that ignore the question.
func (e *encryption) confirmed(c confirmation) error {
	switch {
	case e.customerKey != nil && aws.ToString(c.customerKeyMD5) != *e.customerKeyMD5:
		return fmt.Errorf("%w: the store named no or another customer key: it does not support them", store.ErrUnconfirmed)
	case e.algorithm != c.algorithm && e.algorithm != "":
		return fmt.Errorf("%w: asked for %s, the store answered %q: it ignores encryption or has no key service",
			store.ErrUnconfirmed, e.algorithm, c.algorithm)
	case e.kmsKeyID != nil && !sameKMSKey(*e.kmsKeyID, aws.ToString(c.kmsKeyID)):
		return fmt.Errorf("%w: asked for key %s, the store answered %q", store.ErrUnconfirmed, *e.kmsKeyID, aws.ToString(c.kmsKeyID))
	}
	return nil
}

// sameKMSKey compares what can be compared: the answer is an ARN or an ID; behind an alias may be any.
func sameKMSKey(asked, answered string) bool {
	if strings.Contains(asked, "alias/") {
		return answered != ""
	}
	id := func(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
	return id(asked) == id(answered)
}
