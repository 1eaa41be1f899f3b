package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

// Get streams a range over as many connections as it takes.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("%w: get %s from offset %d", store.ErrInvalid, key, offset)
	}
	d := &download{s: s, ctx: ctx, key: key, at: offset, end: -1}
	if length >= 0 && length < math.MaxInt64-offset {
		d.end = offset + max(length, 1) // of an empty range one byte is asked for: is the object there?
	}
	out, err := d.ask()
	switch {
	case code(err) == "InvalidRange" || answerOf(err).status == http.StatusRequestedRangeNotSatisfiable:
		return http.NoBody, nil
	case err != nil:
		return nil, s.failed("get", key, err)
	}
	if err := d.begin(out); err != nil {
		out.Body.Close()
		return nil, err
	}
	if length == 0 {
		d.end = d.at
	}
	return d, nil
}

// download reads a range of one version of an object.
type download struct {
	s   *Store
	ctx context.Context // a reader has no other way to be reported
	key string
	// at is the offset of the next byte, end the one after the last; -1 before the size is known.
	at, end int64
	etag    *string
	body    io.ReadCloser
	// failures since the last byte came.
	failures int
	sum      *checksum // nil where there is nothing to compare with
}

// ask requests what is left, of the version that the first answer named.
func (d *download) ask() (*s3.GetObjectOutput, error) {
	in := &s3.GetObjectInput{
		Bucket: d.s.bucket(), Key: d.s.name(d.key), IfMatch: d.etag, SSECustomerAlgorithm: d.s.encryption.customerAlgorithm,
		SSECustomerKey: d.s.encryption.customerKey, SSECustomerKeyMD5: d.s.encryption.customerKeyMD5,
	}
	switch {
	case d.end >= 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", d.at, d.end-1))
	case d.at > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", d.at))
	case d.s.checksum:
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := d.s.client.GetObject(d.ctx, in)
	// From the beginning the whole object will do, too.
	if err == nil && d.at > 0 && !strings.HasPrefix(aws.ToString(out.ContentRange), fmt.Sprintf("bytes %d-", d.at)) {
		out.Body.Close()
		return nil, fmt.Errorf("asked for %s, the store sent %q", *in.Range, aws.ToString(out.ContentRange))
	}
	return out, err
}

// begin takes from the first answer how much there is, and how to verify it.
func (d *download) begin(out *s3.GetObjectOutput) error {
	if aws.ToInt64(out.ContentLength) < 0 || out.ContentLength == nil || out.ETag == nil {
		return fmt.Errorf("get %s in %s: the answer has no length or no ETag", d.key, d.s)
	}
	end := d.at + *out.ContentLength
	if d.at == 0 && d.end < 0 {
		d.sum = expected(out)
	}
	if d.end < 0 || d.end > end {
		d.end = end
	}
	d.body, d.etag = out.Body, out.ETag
	return nil
}

func (d *download) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if d.at == d.end {
			return 0, d.verify()
		}
		n, err := d.body.Read(p[:min(int64(len(p)), d.end-d.at)])
		if n > 0 {
			d.at += int64(n)
			d.failures = 0
			d.sum.write(p[:n])
			return n, nil // an error comes again, or does not matter any more
		}
		if err == nil {
			continue
		}
		if err := d.resume(err); err != nil {
			return 0, err
		}
	}
}

// verify ends the stream. What an error of the connection says after the last byte does not matter: the sum does.
func (d *download) verify() error {
	if err := d.sum.verify(); err != nil {
		return fmt.Errorf("get %s in %s: %w: %w; do not use it, and put another backup in its place", d.key, d.s, store.ErrDamaged, err)
	}
	return io.EOF
}

// resume asks for what is left after a connection broke, with patience as long as bytes come.
func (d *download) resume(broken error) error {
	d.body.Close()
	if errors.Is(broken, io.EOF) || errors.Is(broken, io.ErrUnexpectedEOF) {
		broken = errEndedEarly
	}
	for {
		if d.failures++; d.failures >= d.s.t.attempts {
			return fmt.Errorf("get %s in %s: broke %d times in a row at byte %d: %w", d.key, d.s, d.failures, d.at, broken)
		}
		if err := d.wait(); err != nil {
			return fmt.Errorf("get %s in %s: at byte %d: %w", d.key, d.s, d.at, err)
		}
		out, err := d.ask()
		if err == nil {
			d.body = out.Body
			return nil
		}
		if a := answerOf(err); a.code == "PreconditionFailed" || a.status == http.StatusPreconditionFailed || a.status == http.StatusNotFound {
			d.body = http.NoBody
			return fmt.Errorf("get %s in %s: %w at byte %d", d.key, d.s, store.ErrChanged, d.at)
		}
		if refused(err) || d.ctx.Err() != nil {
			d.body = http.NoBody
			return d.s.failed("get", d.key, err)
		}
		broken = err
	}
}

// errEndedEarly stands for io.EOF, which no one must find in an error and take for the end of the object.
var errEndedEarly = errors.New("the connection ended early")

// wait is a random part of an exponentially growing time, as the SDK's own before it sends a request again.
func (d *download) wait() error {
	limit := min(time.Second<<min(d.failures-1, 10), d.s.t.backoff)
	if !loop.Sleep(d.ctx, rand.N(limit+1)) {
		return context.Cause(d.ctx)
	}
	return nil
}

func (d *download) Close() error { return d.body.Close() }

// Version is the one that the first answer named: all others are asked for that.
func (d *download) Version() string { return aws.ToString(d.etag) }

// expected is the checksum that the store has of an object, in a form that can be computed again; nil if there is none.
func expected(out *s3.GetObjectOutput) *checksum {
	want := aws.ToString(out.ChecksumCRC32C)
	if want == "" {
		return nil
	}
	sum, count, composite := strings.Cut(want, "-")
	if !composite {
		return &checksum{want: sum}
	}
	// A checksum of checksums: only who knows the parts can compute it.
	size, err := strconv.Atoi(out.Metadata[partSizeKey])
	if err != nil || size <= 0 {
		return nil
	}
	if parts, err := strconv.Atoi(count); err != nil || int64(parts) != (*out.ContentLength+int64(size)-1)/int64(size) {
		return nil
	}
	return &checksum{want: sum, partSize: size}
}

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
