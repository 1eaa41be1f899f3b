package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-druid/druid/backup/store"
)

// lock settles until when the object is to be locked. There are stores that ignore a lock on an object of a bucket that
// has none enabled, so the bucket is asked, once, before the first object is sent.
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

// Delete removes an object that is not locked. A bucket with versioning would hide a locked one behind a delete marker and
// call that a success, so the lock is read first.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	head, err := s.head(ctx, key)
	switch {
	case errors.Is(err, store.ErrAbsent):
		return s.exists(ctx) // deleting it all the same would leave a delete marker of nothing
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

// exists asks for the bucket alone: the answer to a HEAD of an object says 404 for either.
func (s *Store) exists(ctx context.Context) error {
	_, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: s.bucket()})
	if answerOf(err).status == http.StatusNotFound {
		return fmt.Errorf("look up %s: %w; %s", s, store.ErrNoBucket, noBucketAdvice)
	}
	return s.failed("look up", "the bucket", err)
}

// locked compares the end of a lock with the store's own clock. Without a date in the answer every lock holds.
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
