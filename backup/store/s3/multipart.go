package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

// multipart sends the object in parts: it sends one while it reads the next. Nothing is visible until the upload is
// completed.
func (u *upload) multipart(ctx context.Context, first []byte, more bool, r io.Reader) (store.Object, error) {
	// A conditional upload is refused only when it is completed: asked first, to spare the stream.
	if u.o.IfAbsent {
		if _, err := u.s.head(ctx, u.key); err == nil {
			return store.Object{}, u.exists()
		}
	}
	inFlight, cancel := u.s.inFlight(ctx)
	defer cancel()
	if err := u.begin(inFlight); err != nil {
		return store.Object{}, err
	}
	if err := u.send(ctx, first, more, r); err != nil {
		return store.Object{}, also(u.s.failed("put", u.key, err), u.abort(ctx))
	}
	out, err := u.s.client.CompleteMultipartUpload(inFlight, &s3.CompleteMultipartUploadInput{
		Bucket: u.s.bucket(), Key: u.s.name(u.key), UploadId: u.id, IfNoneMatch: u.ifNoneMatch(),
		MultipartUpload:      &types.CompletedMultipartUpload{Parts: u.parts},
		SSECustomerAlgorithm: u.s.encryption.customerAlgorithm, SSECustomerKey: u.s.encryption.customerKey,
		SSECustomerKeyMD5: u.s.encryption.customerKeyMD5,
	})
	if err != nil {
		// Abort first: what is found after that is final. An upload that was completed after all has nothing to abort.
		aborted := u.abort(ctx)
		object, err := u.resolvePending(ctx, err)
		if err != nil {
			return store.Object{}, also(err, aborted)
		}
		return object, nil
	}
	return u.object(serverTime(out.ResultMetadata)), nil
}

// begin creates the upload and checks that its encryption is confirmed.
func (u *upload) begin(ctx context.Context) error {
	e := u.s.encryption
	in := &s3.CreateMultipartUploadInput{
		Bucket: u.s.bucket(), Key: u.s.name(u.key), Metadata: u.metadata(),
		ObjectLockMode: u.lockMode(), ObjectLockRetainUntilDate: u.until,
		ServerSideEncryption: e.algorithm, SSEKMSKeyId: e.kmsKeyID,
		SSECustomerAlgorithm: e.customerAlgorithm, SSECustomerKey: e.customerKey, SSECustomerKeyMD5: e.customerKeyMD5,
	}
	if u.s.checksum {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
		in.ChecksumType = types.ChecksumTypeComposite
	}
	out, err := u.s.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return u.s.failed("put", u.key, err)
	}
	u.id = out.UploadId
	said := confirmation{algorithm: out.ServerSideEncryption, kmsKeyID: out.SSEKMSKeyId, customerKeyMD5: out.SSECustomerKeyMD5}
	if err := e.confirmed(said); err != nil {
		return also(u.s.failed("put", u.key, err), u.abort(ctx))
	}
	return nil
}

// send reads into one buffer while it sends the other. It returns after all reads and sends have ended.
func (u *upload) send(ctx context.Context, part []byte, more bool, r io.Reader) error {
	wanted, unwanted := context.WithCancel(ctx)
	defer unwanted()
	inFlight, cancel := u.s.inFlight(wanted)
	defer cancel()
	var sending errgroup.Group
	next := []byte(nil)
	for number := int32(1); ; number++ {
		if err := sending.Wait(); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if number > 1 && len(part) == 0 {
			return nil // the object ended with the part before
		}
		if number > store.MaxParts {
			return fmt.Errorf("%w: an object has at most %d parts of %d bytes", store.ErrInvalid, store.MaxParts, u.s.t.part)
		}
		ready, n := part, number
		sending.Go(loop.Recovered(func() error { return u.sendPart(inFlight, n, ready) }))
		if !more {
			part = nil
			continue
		}
		if next == nil {
			next = make([]byte, 0, u.s.t.part)
		}
		var err error
		if part, more, err = u.s.fill(r, next); err != nil {
			unwanted()
			_ = sending.Wait() // the object is no longer needed
			return err
		}
		next = ready
	}
}

func (u *upload) sendPart(ctx context.Context, number int32, body []byte) error {
	in := &s3.UploadPartInput{
		Bucket: u.s.bucket(), Key: u.s.name(u.key), UploadId: u.id, PartNumber: aws.Int32(number),
		Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		SSECustomerAlgorithm: u.s.encryption.customerAlgorithm, SSECustomerKey: u.s.encryption.customerKey,
		SSECustomerKeyMD5: u.s.encryption.customerKeyMD5,
	}
	if u.s.checksum {
		in.ChecksumCRC32C = crc32cOf(body)
	} else {
		in.ContentMD5 = md5Of(body)
	}
	out, err := u.s.client.UploadPart(ctx, in)
	if err != nil {
		return err
	}
	u.size += int64(len(body))
	u.parts = append(u.parts, types.CompletedPart{ETag: out.ETag, PartNumber: in.PartNumber, ChecksumCRC32C: in.ChecksumCRC32C})
	return nil
}

// abort aborts the upload, so that its parts cost nothing. What it cannot abort is left to Sweep.
func (u *upload) abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.s.t.release)
	defer cancel()
	return u.s.abort(ctx, u.key, u.id)
}

func (s *Store) abort(ctx context.Context, key string, id *string) error {
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: s.bucket(), Key: s.name(key), UploadId: id})
	if code(err) == "NoSuchUpload" {
		return nil // completed, or aborted by an answer that was lost
	}
	return s.failed("abort the upload of", key, err)
}

// lock computes the end of the lock of the object. Some stores ignore a lock if the bucket has no object lock enabled,
// so lock checks the bucket once, before the first object is sent.
func (u *upload) lock(ctx context.Context) error {
	l := u.s.c.ObjectLock
	if l == nil {
		return nil
	}
	u.until = aws.Time(time.Now().UTC().AddDate(0, 0, l.Days).Truncate(time.Second))
	if u.s.locks.Load() {
		return nil
	}
	out, err := u.s.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: u.s.bucket()})
	if err != nil {
		return u.s.failed("put", u.key, err)
	}
	if c := out.ObjectLockConfiguration; c == nil || c.ObjectLockEnabled != types.ObjectLockEnabledEnabled {
		return fmt.Errorf("put %s in %s: %w; %s", u.key, u.s, store.ErrUnconfirmed, noLockAdvice)
	}
	u.s.locks.Store(true)
	return nil
}

func (u *upload) lockMode() types.ObjectLockMode {
	switch {
	case u.s.c.ObjectLock == nil:
		return ""
	case u.s.c.ObjectLock.Mode == store.LockCompliance:
		return types.ObjectLockModeCompliance
	}
	return types.ObjectLockModeGovernance
}

// Delete removes an object that is not locked. A bucket with versioning would hide a locked object behind a delete
// marker and return success, so Delete reads the lock first.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	head, err := s.head(ctx, key)
	switch {
	case errors.Is(err, store.ErrAbsent):
		return s.exists(ctx) // deleting it anyway would leave a delete marker
	case err != nil:
		return err
	}
	if err := locked(head); err != nil {
		return fmt.Errorf("delete %s in %s: %w", key, s, err)
	}
	_, err = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: s.bucket(), Key: s.name(key)})
	if code(err) == "NoSuchKey" {
		return nil
	}
	return s.failed("delete", key, err)
}

// exists requests only the bucket, because a HEAD of an object returns 404 for a missing bucket too.
func (s *Store) exists(ctx context.Context) error {
	_, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: s.bucket()})
	if answerOf(err).status == http.StatusNotFound {
		return fmt.Errorf("look up %s: %w; %s", s, store.ErrNoBucket, noBucketAdvice)
	}
	return s.failed("look up", "the bucket", err)
}

// locked compares the end of a lock with the clock of the store. Without a date in the response, every lock counts as
// active.
func locked(head *s3.HeadObjectOutput) error {
	if head.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn {
		return fmt.Errorf("%w by a legal hold", store.ErrLocked)
	}
	if until := head.ObjectLockRetainUntilDate; until != nil {
		if now := serverTime(head.ResultMetadata); now.Before(*until) {
			return fmt.Errorf("%w in mode %s until %s", store.ErrLocked, head.ObjectLockMode, until.Format(time.RFC3339))
		}
	}
	return nil
}
