package s3

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/etcd-druid/druid/backup/store"
)

// cause is one of the ways in which a store refuses, and what to do about it.
type cause struct {
	// codes of S3's answer; or else status, which is all that a HEAD reports.
	codes  []string
	status int
	// text must be part of the message, where the code alone is shared with other causes.
	text string
	// is the store's error, nil where the outcome is unknown.
	is     error
	advice string
}

const (
	noBucketAdvice  = "create the bucket, or repair s3.bucket and s3.endpoint"
	regionAdvice    = "the bucket is in another region: set s3.region to the bucket's, and leave s3.endpoint out or name that region's"
	noLockAdvice    = "the bucket has no object lock: enable it at the bucket, or leave s3.objectLock out"
	encryptedAdvice = "the object was stored with another setting of s3.encryption: set the key that it was stored with, or move it away"
	lockedAdvice    = "wait for the end of the object's lock"
)

// causes are tried in order; what none covers is unknown and has no advice.
var causes = []cause{
	{codes: []string{"NoSuchBucket"}, is: store.ErrNoBucket, advice: noBucketAdvice},
	{codes: []string{"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "BadRegion"},
		advice: regionAdvice},
	{status: http.StatusMovedPermanently, advice: regionAdvice},
	{codes: []string{"RequestTimeTooSkewed", "RequestExpired"}, is: store.ErrForbidden,
		advice: "the clocks of this machine and of the store differ by minutes: set them by NTP"},
	{codes: []string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"}, is: store.ErrForbidden,
		advice: "the credentials expired: renew them in the Secret; no restart is needed"},
	{codes: []string{"InvalidAccessKeyId", "InvalidAccessKeyID"}, is: store.ErrForbidden,
		advice: "the store does not know the access key: repair the Secret; no restart is needed"},
	{codes: []string{"SignatureDoesNotMatch"}, is: store.ErrForbidden,
		advice: "the secret access key does not fit the access key ID: repair the Secret; no restart is needed"},
	{text: "WORM", is: store.ErrLocked, advice: lockedAdvice},
	{codes: []string{"ObjectLocked"}, is: store.ErrLocked, advice: lockedAdvice},
	{codes: []string{"InvalidBucketState", "ObjectLockConfigurationNotFoundError"}, is: store.ErrUnconfirmed, advice: noLockAdvice},
	{text: "Object Lock Configuration", is: store.ErrUnconfirmed, advice: noLockAdvice},
	{text: "encryption parameters are not applicable", is: store.ErrNoKey, advice: encryptedAdvice},
	{text: "form of Server Side Encryption", is: store.ErrNoKey, advice: encryptedAdvice},
	{codes: []string{"KMS.DisabledException", "KMS.NotFoundException", "KMS.KMSInvalidStateException"}, is: store.ErrNoKey,
		advice: "the key that the object is encrypted with is disabled or gone: enable it"},
	{codes: []string{"InvalidObjectState"}, is: store.ErrForbidden, advice: "the object is in an archive: restore it from there, or delete it"},
	{codes: []string{"AccessDenied", "AllAccessDisabled", "AccountProblem"}, is: store.ErrForbidden,
		advice: "allow s3:GetObject, PutObject, DeleteObject, AbortMultipartUpload ListBucket, ListBucketMultipartUploads and, for locks, GetBucketObjectLockConfiguration on the bucket, and the use of its encryption key"},
	{codes: []string{"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"},
		advice: "the bytes changed on the way to the store: look for a proxy, or broken memory"},
	{codes: []string{"NotImplemented", "XNotImplemented"},
		advice: "the store lacks what was asked for: for checksums set s3.checksum to WhenRequired"},
	{codes: []string{"QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"},
		advice: "the store is full: raise its quota, or let retention keep less"},
	{codes: []string{"NoSuchUpload"},
		advice: "someone aborted the upload while it ran: a Sweep with too short an age, or a rule of the bucket; put it again"},
	{codes: []string{"NoSuchKey", "NotFound"}, is: store.ErrAbsent},
	{status: http.StatusNotFound, is: store.ErrAbsent},
	{status: http.StatusUnauthorized, is: store.ErrForbidden, advice: "the store wants credentials: repair the Secret"},
	{status: http.StatusForbidden, is: store.ErrForbidden,
		advice: "check the credentials, and that they may read, write and list the bucket"},
	{status: http.StatusServiceUnavailable,
		advice: "the store is busy or down: nothing to do here, the next attempt follows"},
}

// failed says in a sentence what failed with which object of which bucket, what the store answered, and what to do.
func (s *Store) failed(verb, key string, err error) error {
	if err == nil {
		return nil
	}
	if source, ok := errors.AsType[sourceError](err); ok {
		return fmt.Errorf("%s %s in %s: read what to put: %w", verb, key, s, source.error)
	}
	if advice := unidentified(err); advice != "" {
		return fmt.Errorf("%s %s in %s: %w; %s", verb, key, s, err, advice)
	}
	answer := answerOf(err)
	wrapped := fmt.Errorf("%s %s in %s: %w", verb, key, s, answer)
	i := slices.IndexFunc(causes, func(c cause) bool { return c.covers(answer) })
	advice := unreached(err)
	if i >= 0 {
		advice = causes[i].advice
		if is := causes[i].is; is != nil {
			wrapped = fmt.Errorf("%w: %w", wrapped, is)
		}
	}
	if advice != "" {
		wrapped = fmt.Errorf("%w; %s", wrapped, advice)
	}
	return wrapped
}

func (c cause) covers(a answerError) bool {
	switch {
	case c.text != "":
		return strings.Contains(a.message, c.text)
	case c.codes != nil:
		return slices.Contains(c.codes, a.code)
	}
	return a.status == c.status
}

// answerError is what the store said, shortened to what a person needs: the SDK's own text names the operation three times.
type answerError struct {
	status              int
	code, message, hint string
	request             string
	err                 error
}

func answerOf(err error) answerError {
	a := answerError{err: err}
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		a.status, a.request = response.HTTPStatusCode(), response.ServiceRequestID()
		if response.Response != nil {
			a.hint = response.Response.Header.Get("X-Amz-Bucket-Region")
		}
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		a.code, a.message = api.ErrorCode(), api.ErrorMessage()
	}
	return a
}

func (a answerError) Unwrap() error { return a.err }

func (a answerError) Error() string {
	if sent, ok := errors.AsType[*url.Error](a.err); ok && a.code == "" {
		if given, ok := errors.AsType[*retry.MaxAttemptsError](a.err); ok {
			return fmt.Sprintf("%d attempts, the last: %v", given.Attempt, sent)
		}
		return sent.Error()
	}
	if a.code == "" {
		return a.err.Error()
	}
	text := fmt.Sprintf("the store answered %d %s", a.status, a.code)
	if a.message != "" {
		text += " (" + a.message + ")"
	}
	if a.hint != "" {
		text += ", the bucket's region is " + a.hint
	}
	if a.request != "" {
		text += ", request " + a.request
	}
	return text
}

// unidentified is the advice where there are no credentials, and so the store was not even asked. Who refused them, as AWS'
// token service does, has an answer of its own, which says nothing of the bucket.
func unidentified(err error) string {
	if _, ok := errors.AsType[credentialsError](err); ok {
		return "mount the Secret with the credentials, or repair it; no restart is needed"
	}
	if strings.Contains(err.Error(), "get identity: ") {
		return "no credentials were got: set s3.credentialsDir, or give the Pod's service account an identity"
	}
	return ""
}

// unreached is the advice where no store answered.
func unreached(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "no such host: repair s3.endpoint or s3.region; where buckets have no host names of their own set s3.pathStyle"
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, otherHost := errors.AsType[x509.HostnameError](err)
	if unknown || otherHost {
		return "the endpoint's certificate is not trusted: set s3.caBundle to the authority's, and s3.endpoint to a name in the certificate"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "the endpoint does not answer: check s3.endpoint and the network policies on the way"
	}
	return ""
}

// sourceError is one of the reader that was to be put: the store has no part in it.
type sourceError struct{ error }

// also adds what went wrong while cleaning up.
func also(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return fmt.Errorf("%w; and: %w", err, cleanup)
}

// code reports what the store answered, "" where nothing came.
func code(err error) string { return answerOf(err).code }

// refused reports whether the store itself said no, so that nothing was done.
func refused(err error) bool {
	a := answerOf(err)
	return a.status >= 400 && a.status < 500 && a.status != http.StatusRequestTimeout
}
