package s3

import (
	"bytes"
	"context"
	"crypto/md5" // every store verifies Content-MD5
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithymiddleware "github.com/aws/smithy-go/middleware"

	"github.com/etcd-druid/druid/backup/store"
)

// Metadata of each object: who put it, and how long its parts are, without which its checksum cannot be computed again.
const (
	tokenKey    = "druid-put"
	partSizeKey = "druid-part-size"
)

// upload is one Put.
type upload struct {
	s     *Store
	key   string
	token string
	o     store.PutOptions
	until *time.Time // end of the object's lock
	// id of the multipart upload, and its parts so far.
	id    *string
	parts []types.CompletedPart
	size  int64
}

// Put sends up to one part as one request, and more as a multipart upload. With encryption it always uses a multipart
// upload: the first response confirms the encryption before a byte of the object is sent.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Object{}, err
	}
	u := &upload{s: s, key: key, token: rand.Text(), o: o}
	if err := u.lock(ctx); err != nil {
		return store.Object{}, err
	}
	if body, size := s.resident(r); body != nil {
		return u.whole(ctx, body, size)
	}
	first, more, err := s.fill(r, nil)
	switch {
	case err != nil:
		return store.Object{}, s.failed("put", key, err)
	case !more && !s.encryption.asked():
		return u.whole(ctx, bytes.NewReader(first), int64(len(first)))
	}
	return u.multipart(ctx, first, more, r)
}

// resident returns r itself and its size if it is in memory and fits into one request. That avoids a copy of a delta
// backup, which is in memory already. It returns nil if r must be read first.
func (s *Store) resident(r io.Reader) (body io.ReadSeeker, size int64) {
	sized, ok := r.(store.Sized)
	if !ok || s.encryption.asked() || sized.Size() >= int64(s.t.part) {
		return nil, 0
	}
	if at, err := sized.Seek(0, io.SeekCurrent); at != 0 || err != nil {
		return nil, 0
	}
	return sized, sized.Size()
}

// fill reads up to one part into buf, which grows as needed. It reports whether more may follow.
func (s *Store) fill(r io.Reader, buf []byte) (part []byte, more bool, err error) {
	const smallest = 64 << 10 // a delta of a quiet cluster must not cost a part's memory
	buf = buf[:0]
	for {
		if len(buf) == s.t.part {
			return buf, true, nil
		}
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(max(2*cap(buf), smallest), s.t.part))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), s.t.part)])
		buf = buf[:len(buf)+n]
		if err == io.EOF { // itself: an error that wraps it is one, and what came until then is not the whole
			return buf, false, nil
		}
		if err != nil {
			return nil, false, sourceError{err}
		}
	}
}

// whole puts the object in one request.
func (u *upload) whole(ctx context.Context, body io.ReadSeeker, size int64) (store.Object, error) {
	in := &s3.PutObjectInput{
		Bucket: u.s.bucket(), Key: u.s.name(u.key), Body: body, ContentLength: aws.Int64(size),
		IfNoneMatch: u.ifNoneMatch(), Metadata: u.metadata(), ObjectLockMode: u.lockMode(), ObjectLockRetainUntilDate: u.until,
	}
	sum, err := u.s.sumOf(body)
	if err != nil {
		return store.Object{}, u.s.failed("put", u.key, sourceError{err})
	}
	if u.s.checksum {
		in.ChecksumCRC32C = sum
	} else {
		in.ContentMD5 = sum
	}
	if err := context.Cause(ctx); err != nil {
		return store.Object{}, u.s.failed("put", u.key, err)
	}
	u.size = size
	inFlight, cancel := u.s.inFlight(ctx)
	defer cancel()
	out, err := u.s.client.PutObject(inFlight, in)
	if err != nil {
		return u.resolvePending(ctx, err)
	}
	return u.object(serverTime(out.ResultMetadata)), nil
}

// inFlight returns a context that outlives that of a Put by the time that requests in flight may take to arrive. A
// store may act on a request that arrives after a later one: it stores an object that did not exist, or keeps a part
// of an aborted upload, which creates the upload again (AWS, AbortMultipartUpload: parts in progress may succeed).
// Therefore, Put waits for the response and does not cancel the request.
func (s *Store) inFlight(wanted context.Context) (context.Context, context.CancelFunc) {
	inFlight, cancel := context.WithCancel(context.WithoutCancel(wanted))
	stop := context.AfterFunc(wanted, func() { time.AfterFunc(s.t.inFlight, cancel) })
	return inFlight, func() {
		stop()
		cancel()
	}
}

// resolvePending finds out what became of an object whose last response was an error. A repeated request finds what
// the first one made, and a lost response may have been a success. The token shows whose object exists.
func (u *upload) resolvePending(ctx context.Context, cause error) (store.Object, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.s.t.release)
	defer cancel()
	failed := u.s.failed("put", u.key, cause)
	taken := code(cause) == "PreconditionFailed" || answerOf(cause).status == 412
	head, err := u.s.head(ctx, u.key)
	switch {
	case err == nil && head.Metadata[tokenKey] == u.token:
		return u.object(aws.ToTime(head.LastModified)), nil
	case taken && (err == nil || errors.Is(err, store.ErrAbsent)), err == nil && u.o.IfAbsent && code(cause) == "ConditionalRequestConflict":
		return store.Object{}, u.exists()
	case errors.Is(err, store.ErrAbsent) && errors.Is(cause, context.Canceled):
		return store.Object{}, fmt.Errorf("%w; the request was cancelled, and it is unknown whether the object will be stored", failed)
	case err == nil, errors.Is(err, store.ErrAbsent), refused(cause) && !taken, unidentified(cause) != "":
		return store.Object{}, failed
	}
	return store.Object{}, fmt.Errorf("%w; it is unknown whether the object was stored: %w", failed, err)
}

func (u *upload) exists() error { return fmt.Errorf("put %s in %s: %w", u.key, u.s, store.ErrExists) }

func (u *upload) object(modified time.Time) store.Object {
	return store.Object{Key: u.key, Size: u.size, Modified: modified}
}

func (u *upload) ifNoneMatch() *string {
	if u.o.IfAbsent {
		return aws.String("*")
	}
	return nil
}

func (u *upload) metadata() map[string]string {
	return map[string]string{tokenKey: u.token, partSizeKey: strconv.Itoa(u.s.t.part)}
}

// head requests the metadata of an object. A 404 may also mean that the bucket does not exist.
func (s *Store) head(ctx context.Context, key string) (*s3.HeadObjectOutput, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: s.bucket(), Key: s.name(key), SSECustomerAlgorithm: s.encryption.customerAlgorithm,
		SSECustomerKey: s.encryption.customerKey, SSECustomerKeyMD5: s.encryption.customerKeyMD5,
	})
	return out, s.failed("look up", key, err)
}

// serverTime returns when the store responded, by its own clock, in seconds.
func serverTime(m smithymiddleware.Metadata) time.Time {
	t, _ := middleware.GetServerTime(m)
	return t
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the checksum to send: CRC-32C, or MD5 for a store that accepts only required checksums. It rewinds the
// body.
func (s *Store) sumOf(body io.ReadSeeker) (*string, error) {
	var sum hash.Hash = crc32.New(castagnoli)
	if !s.checksum {
		sum = md5.New()
	}
	if _, err := io.Copy(sum, body); err != nil {
		return nil, err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return aws.String(base64.StdEncoding.EncodeToString(sum.Sum(nil))), nil
}

func crc32cOf(body []byte) *string { return encodeCRC(crc32.Checksum(body, castagnoli)) }

func encodeCRC(sum uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)))
}

func md5Of(body []byte) *string {
	sum := md5.Sum(body)
	return aws.String(base64.StdEncoding.EncodeToString(sum[:]))
}

// checksum computes CRC32C as S3 does: of the complete object, or of the checksums of the parts if partSize is set. A
// nil checksum accepts everything.
type checksum struct {
	want     string
	partSize int
	current  uint32
	inPart   int
	parts    []byte
}

func (c *checksum) write(p []byte) {
	for c != nil && len(p) > 0 {
		n := len(p)
		if c.partSize > 0 {
			n = min(n, c.partSize-c.inPart)
		}
		c.current = crc32.Update(c.current, castagnoli, p[:n])
		c.inPart += n
		p = p[n:]
		if c.inPart == c.partSize {
			c.endPart()
		}
	}
}

func (c *checksum) endPart() {
	c.parts = binary.BigEndian.AppendUint32(c.parts, c.current)
	c.current, c.inPart = 0, 0
}

func (c *checksum) verify() error {
	if c == nil {
		return nil
	}
	if c.partSize > 0 {
		if c.inPart > 0 {
			c.endPart()
		}
		c.current = crc32.Checksum(c.parts, castagnoli)
	}
	if got := aws.ToString(encodeCRC(c.current)); got != c.want {
		return fmt.Errorf("the store has the CRC32C checksum %s, but the bytes have %s", c.want, got)
	}
	return nil
}
