package s3

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-druid/druid/backup/store"
)

// List asks page after page. Objects whose names are no keys are not ours and not shown.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		if err := store.CheckPrefix(prefix); err != nil {
			yield(store.Object{}, err)
			return
		}
		var last, token string
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{
			Bucket: s.bucket(), Prefix: s.prefix(prefix), MaxKeys: aws.Int32(s.t.page),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(store.Object{}, s.failed("list", prefix, err))
				return
			}
			store.Progressed(ctx)
			for _, o := range page.Contents {
				key, ok := s.key(o.Key)
				if !ok {
					continue
				}
				// A plan is made from the order: a store that has another must not be believed.
				if key <= last {
					yield(store.Object{}, fmt.Errorf("list %s in %s: %s came after %s: the store does not list in order", prefix, s, key, last))
					return
				}
				last = key
				if !yield(store.Object{Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
			if token, err = s.nextPage(prefix, page.IsTruncated, token, aws.ToString(page.NextContinuationToken)); err != nil {
				yield(store.Object{}, err)
				return
			}
		}
	}
}

// nextPage is the token of the page that follows, empty after the last one. The paginators take a page that leads nowhere for the last,
// or ask for it permanently: here it is an error.
func (s *Store) nextPage(prefix string, truncated *bool, before, next string) (string, error) {
	if aws.ToBool(truncated) && (next == "" || next == before) {
		return "", fmt.Errorf("list %s in %s: the store says that there is more, and names no page that follows (its token is %q, the one before %q): repair or update the store, or what is between it and this machine",
			prefix, s, next, before)
	}
	return next, nil
}

// Sweep aborts the uploads under prefix that are older than olderThan.
func (s *Store) Sweep(ctx context.Context, prefix string, olderThan time.Duration) (int, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	var aborted int
	var token string
	pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{
		Bucket: s.bucket(), Prefix: s.prefix(prefix), MaxUploads: aws.Int32(s.t.page),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return aborted, s.failed("list the uploads under", prefix, err)
		}
		now, ok := middleware.GetServerTime(page.ResultMetadata)
		if !ok {
			return aborted, fmt.Errorf("sweep %s in %s: the answer has no date to compare the uploads' age with", prefix, s)
		}
		n, err := s.abortOld(ctx, page.Uploads, now.Add(-olderThan))
		if aborted += n; err != nil {
			return aborted, err
		}
		next := aws.ToString(page.NextKeyMarker)
		if next != "" { // several uploads may be of one key
			next += " " + aws.ToString(page.NextUploadIdMarker)
		}
		if token, err = s.nextPage(prefix, page.IsTruncated, token, next); err != nil {
			return aborted, err
		}
	}
	return aborted, nil
}

func (s *Store) abortOld(ctx context.Context, uploads []types.MultipartUpload, before time.Time) (int, error) {
	var aborted int
	for _, u := range uploads {
		key, ok := s.key(u.Key)
		if !ok || u.Initiated == nil || u.Initiated.After(before) {
			continue
		}
		if err := s.abort(ctx, key, u.UploadId); err != nil {
			return aborted, err
		}
		aborted++
	}
	return aborted, nil
}

// prefix is what the names in the bucket of a prefix's keys begin with; nil is all.
func (s *Store) prefix(prefix string) *string {
	if prefix == "" && s.c.Prefix == "" {
		return nil
	}
	return s.name(prefix)
}
