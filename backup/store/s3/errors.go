package s3

import (
	"context"
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

// cause is a kind of error response of a store, with advice.
type cause struct {
	// codes in the response of S3, or else status, which is all that a HEAD returns.
	codes  []string
	status int
	// text must be part of the message if other causes have the same code.
	text string
	// is the store's error, nil where the outcome is unknown.
	is error
	// kind of failure, empty if there is none or if it follows from is.
	kind   store.Cause
	advice string
}

const (
	noBucketAdvice  = "create the bucket, or correct s3.bucket and s3.endpoint"
	regionAdvice    = "the bucket is in another region: set s3.region to the region of the bucket, and remove s3.endpoint or set it to the endpoint of that region"
	noLockAdvice    = "the bucket has no object lock: enable it for the bucket, or remove s3.objectLock"
	encryptedAdvice = "the object was stored with another s3.encryption: set the key with which it was stored, or move the object away"
	lockedAdvice    = "wait until the lock of the object ends"
	busyAdvice      = "the store is busy with other requests: the next attempt follows; if this stays, raise the limit of the account, or back up less often"
)

// causes are tried in order. An error that none of them matches is unknown and has no advice.
var causes = []cause{
	{codes: []string{"NoSuchBucket"}, is: store.ErrNoBucket, advice: noBucketAdvice},
	{codes: []string{"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "BadRegion"},
		advice: regionAdvice},
	{status: http.StatusMovedPermanently, advice: regionAdvice},
	{codes: []string{"RequestTimeTooSkewed", "RequestExpired"}, is: store.ErrForbidden, kind: store.CauseUnauthorized,
		advice: "the clocks of this machine and of the store differ by minutes: synchronize them with NTP"},
	{codes: []string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"}, is: store.ErrForbidden, kind: store.CauseUnauthorized,
		advice: "the credentials expired: update the Secret; no restart is needed"},
	{codes: []string{"InvalidAccessKeyId", "InvalidAccessKeyID"}, is: store.ErrForbidden, kind: store.CauseUnauthorized,
		advice: "the store does not know the access key: correct the Secret; no restart is needed"},
	{codes: []string{"SignatureDoesNotMatch"}, is: store.ErrForbidden, kind: store.CauseUnauthorized,
		advice: "the secret access key does not match the access key ID: correct the Secret; no restart is needed"},
	{text: "WORM", is: store.ErrLocked, advice: lockedAdvice},
	{codes: []string{"ObjectLocked"}, is: store.ErrLocked, advice: lockedAdvice},
	{codes: []string{"InvalidBucketState", "ObjectLockConfigurationNotFoundError"}, is: store.ErrUnconfirmed, advice: noLockAdvice},
	{text: "Object Lock Configuration", is: store.ErrUnconfirmed, advice: noLockAdvice},
	{text: "encryption parameters are not applicable", is: store.ErrNoKey, advice: encryptedAdvice},
	{text: "form of Server Side Encryption", is: store.ErrNoKey, advice: encryptedAdvice},
	{codes: []string{"KMS.DisabledException", "KMS.NotFoundException", "KMS.KMSInvalidStateException"}, is: store.ErrNoKey,
		advice: "the key with which the object is encrypted is disabled or was deleted: enable it"},
	{codes: []string{"InvalidObjectState"}, is: store.ErrForbidden, advice: "the object is in an archive: restore it from the archive, or delete it"},
	{codes: []string{"AccessDenied", "AllAccessDisabled", "AccountProblem"}, is: store.ErrForbidden, kind: store.CauseUnauthorized,
		advice: "allow s3:GetObject, PutObject, DeleteObject, AbortMultipartUpload, ListBucket, ListBucketMultipartUploads and, for locks, " +
			"GetBucketObjectLockConfiguration on the bucket, and the use of its encryption key"},
	{codes: []string{"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"},
		advice: "the bytes changed during the transfer to the store: check proxies and memory"},
	{codes: []string{"NotImplemented", "XNotImplemented"},
		advice: "the store does not support a requested feature: for checksums, set s3.checksum to WhenRequired"},
	{codes: []string{"QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"}, kind: store.CauseFull,
		advice: "the store is full: increase its quota, or keep fewer backups"},
	{codes: []string{"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"}, kind: store.CauseThrottled,
		advice: busyAdvice},
	{status: http.StatusTooManyRequests, kind: store.CauseThrottled, advice: busyAdvice},
	{codes: []string{"NoSuchUpload"},
		advice: "the upload was aborted while it ran, by a Sweep with too short an age or a lifecycle rule of the bucket; put the object again"},
	{codes: []string{"NoSuchKey", "NotFound"}, is: store.ErrAbsent},
	{status: http.StatusNotFound, is: store.ErrAbsent},
	{status: http.StatusUnauthorized, is: store.ErrForbidden, kind: store.CauseUnauthorized, advice: "the store requires credentials: correct the Secret"},
	{status: http.StatusForbidden, is: store.ErrForbidden, kind: store.CauseUnauthorized,
		advice: "check the credentials, and their permission to read, write and list the bucket"},
	{status: http.StatusServiceUnavailable, kind: store.CauseUnreachable,
		advice: "the store is busy or down: no action is needed, the next attempt follows"},
}

// failed describes what failed with which object of which bucket, the response of the store, and what to do.
func (s *Store) failed(verb, key string, err error) error {
	if err == nil {
		return nil
	}
	if source, ok := errors.AsType[sourceError](err); ok {
		return store.Failed(verb, key, s, fmt.Errorf("read the source: %w", source.error))
	}
	if advice := unidentified(err); advice != "" {
		return store.Caused(store.CauseUnauthorized, fmt.Errorf("%w; %s", store.Failed(verb, key, s, identityError{err}), advice))
	}
	answer := answerOf(err)
	wrapped := store.Failed(verb, key, s, answer)
	i := slices.IndexFunc(causes, func(c cause) bool { return c.covers(answer) })
	advice, kind := unreached(err), unanswered(answer)
	if i >= 0 {
		advice, kind = causes[i].advice, causes[i].kind
		if is := causes[i].is; is != nil {
			wrapped = fmt.Errorf("%w: %w", wrapped, is)
		}
	}
	if advice != "" {
		wrapped = fmt.Errorf("%w; %s", wrapped, advice)
	}
	return store.Caused(kind, wrapped)
}

// unanswered returns the cause of a request to which no store responded. A request that the caller ended has none, nor has one to an
// endpoint that is not trusted: the network is not the cause.
func unanswered(a answerError) store.Cause {
	_, sent := errors.AsType[*url.Error](a.err)
	if !sent || a.status != 0 || errors.Is(a.err, context.Canceled) || untrusted(a.err) {
		return ""
	}
	return store.CauseUnreachable
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

// answerError is the response of the store in short. The text of the SDK names the operation three times.
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
	text := fmt.Sprintf("the store responded %d %s", a.status, a.code)
	if a.message != "" {
		text += " (" + a.message + ")"
	}
	if a.hint != "" {
		text += ", the region of the bucket is " + a.hint
	}
	if a.request != "" {
		text += ", request " + a.request
	}
	return text
}

// Brief has no ID of a request. A response that the SDK cannot read has its ID in the text of the SDK.
func (a answerError) Brief() string {
	if a.request = ""; a.code != "" {
		return a.Error()
	}
	if response, ok := errors.AsType[*awshttp.ResponseError](a.err); ok && a.status != 0 {
		return fmt.Sprintf("the store responded %d: %s", a.status, store.Brief(response.Err))
	}
	if sent, ok := errors.AsType[*url.Error](a.err); ok {
		return store.Brief(sent)
	}
	return store.Brief(a.err)
}

// identityError is the error of a service that gives credentials, or of a missing Secret.
type identityError struct{ error }

func (e identityError) Unwrap() error { return e.error }

// Brief says only what a service responded.
func (e identityError) Brief() string {
	a := answerOf(e.error)
	if a.status == 0 {
		return store.Brief(e.error)
	}
	return fmt.Sprintf("no credentials: their service responded %d %s (%s)", a.status, a.code, a.message)
}

// unidentified returns the advice for missing credentials, with which the store receives no request. A service that
// denies credentials, such as the token service of AWS, sends a response of its own, which says nothing about the
// bucket.
func unidentified(err error) string {
	if _, ok := errors.AsType[credentialsError](err); ok {
		return "mount the Secret with the credentials, or correct it; no restart is needed"
	}
	if strings.Contains(err.Error(), "get identity: ") {
		return "no credentials were found: set s3.credentialsDir, or give the service account of the Pod an identity"
	}
	return ""
}

// unreached returns the advice if no store responded.
func unreached(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "no such host: correct s3.endpoint or s3.region; if buckets do not have their own host names, set s3.pathStyle"
	}
	if untrusted(err) {
		return "the certificate of the endpoint is not trusted: set s3.caBundle to the certificate of its authority, and s3.endpoint to a name in the certificate"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "the endpoint does not respond: check s3.endpoint and the network policies"
	}
	return ""
}

// untrusted says whether the certificate of the endpoint is not trusted, or has other names.
func untrusted(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, otherHost := errors.AsType[x509.HostnameError](err)
	return unknown || otherHost
}

// sourceError is an error of the reader that Put reads, not of the store.
type sourceError struct{ error }

// also adds an error of the cleanup.
func also(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return fmt.Errorf("%w; and: %w", err, cleanup)
}

// code returns the code of the response, or "" without a response.
func code(err error) string { return answerOf(err).code }

// refused reports whether the store itself rejected the request, so that nothing was done.
func refused(err error) bool {
	a := answerOf(err)
	return a.status >= 400 && a.status < 500 && a.status != http.StatusRequestTimeout
}
