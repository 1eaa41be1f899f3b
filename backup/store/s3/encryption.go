package s3

import (
	"bytes"
	"crypto/md5" // S3 names a customer's key by its MD5
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-druid/druid/backup/store"
)

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
