package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

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
