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

// Get streams a range over as many connections as necessary.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("%w: get %s from offset %d", store.ErrInvalid, key, offset)
	}
	d := &download{s: s, ctx: ctx, key: key, at: offset, end: -1}
	if length >= 0 && length < math.MaxInt64-offset {
		d.end = offset + max(length, 1) // an empty range requests one byte, to learn whether the object exists
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
	ctx context.Context // io.Reader has no parameter for it
	key string
	// at is the offset of the next byte, and end the one after the last; -1 before the size is known.
	at, end int64
	etag    *string
	body    io.ReadCloser
	// failures since the last byte arrived.
	failures int
	sum      *checksum // nil without a checksum to compare with
}

// ask requests the rest, of the version in the first response.
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
	// From the beginning, a response with the complete object is valid, too.
	if err == nil && d.at > 0 && !strings.HasPrefix(aws.ToString(out.ContentRange), fmt.Sprintf("bytes %d-", d.at)) {
		out.Body.Close()
		return nil, fmt.Errorf("requested %s, but the store sent %q", *in.Range, aws.ToString(out.ContentRange))
	}
	return out, err
}

// begin takes the size and the checksum from the first response.
func (d *download) begin(out *s3.GetObjectOutput) error {
	if aws.ToInt64(out.ContentLength) < 0 || out.ContentLength == nil || out.ETag == nil {
		return fmt.Errorf("get %s in %s: the response has no length or no ETag", d.key, d.s)
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
			return n, nil // an error repeats, or no longer matters
		}
		if err == nil {
			continue
		}
		if err := d.resume(err); err != nil {
			return 0, err
		}
	}
}

// verify ends the stream. An error of the connection after the last byte does not matter if the checksum matches.
func (d *download) verify() error {
	if err := d.sum.verify(); err != nil {
		return fmt.Errorf("get %s in %s: %w: %w; do not use this object; take a new backup", d.key, d.s, store.ErrDamaged, err)
	}
	return io.EOF
}

// resume requests the rest after a connection broke. It retries as long as bytes arrive.
func (d *download) resume(broken error) error {
	d.body.Close()
	if errors.Is(broken, io.EOF) || errors.Is(broken, io.ErrUnexpectedEOF) {
		broken = errEndedEarly
	}
	for {
		if d.failures++; d.failures >= d.s.t.attempts {
			return fmt.Errorf("get %s in %s: the connection broke %d times in a row at byte %d: %w", d.key, d.s, d.failures, d.at, broken)
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

// errEndedEarly replaces io.EOF, because a caller that finds io.EOF in an error would take it for the end of the
// object.
var errEndedEarly = errors.New("the connection ended early")

// wait waits for a random part of an exponentially growing time, as the SDK does before a retry.
func (d *download) wait() error {
	limit := min(time.Second<<min(d.failures-1, 10), d.s.t.backoff)
	if !loop.Sleep(d.ctx, rand.N(limit+1)) {
		return context.Cause(d.ctx)
	}
	return nil
}

func (d *download) Close() error { return d.body.Close() }

// Version returns the version in the first response. All other requests ask for that version.
func (d *download) Version() string { return aws.ToString(d.etag) }

// expected returns the checksum of an object in a form that can be computed again, or nil if there is none.
func expected(out *s3.GetObjectOutput) *checksum {
	want := aws.ToString(out.ChecksumCRC32C)
	if want == "" {
		return nil
	}
	sum, count, composite := strings.Cut(want, "-")
	if !composite {
		return &checksum{want: sum}
	}
	// This is a checksum of checksums, which can be computed only if the size of the parts is known.
	size, err := strconv.Atoi(out.Metadata[partSizeKey])
	if err != nil || size <= 0 {
		return nil
	}
	if parts, err := strconv.Atoi(count); err != nil || int64(parts) != (*out.ContentLength+int64(size)-1)/int64(size) {
		return nil
	}
	return &checksum{want: sum, partSize: size}
}

// List requests page after page. It omits objects whose names are not keys, because druid did not make them.
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
				// Plans depend on the order, so a listing in another order is an error.
				if key <= last {
					yield(store.Object{}, fmt.Errorf("list %s in %s: %s follows %s: the store does not list in order", prefix, s, key, last))
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

// nextPage returns the token of the next page, empty after the last one. For a page without a valid token, the
// paginators of the SDK end, or request it again permanently; nextPage returns an error.
func (s *Store) nextPage(prefix string, truncated *bool, before, next string) (string, error) {
	if aws.ToBool(truncated) && (next == "" || next == before) {
		return "", fmt.Errorf("list %s in %s: the store reports more objects, but no next page (token %q, previous token %q): repair or update the "+
			"store or the proxies in front of it",
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
			return aborted, fmt.Errorf("sweep %s in %s: the response has no date, so the age of uploads is unknown", prefix, s)
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

// prefix returns the prefix of names in the bucket for a prefix of keys; nil means all.
func (s *Store) prefix(prefix string) *string {
	if prefix == "" && s.c.Prefix == "" {
		return nil
	}
	return s.name(prefix)
}
