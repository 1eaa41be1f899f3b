package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/etcd-druid/druid/backup/store"
)

// remote reads single places of an object, a block of 64 KiB at a time, and keeps the last ones.
type remote struct {
	ctx    context.Context //nolint:containedctx // a ReadAt has none
	store  store.Store
	key    string
	size   int64
	blocks map[int64][]byte
}

const block = 64 << 10

func (r *remote) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		at := offset + int64(n)
		if at >= r.size {
			return n, io.EOF
		}
		content, err := r.block(at / block)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], content[at%block:])
	}
	return n, nil
}

// block number i. The pages that report a file's versions are in two or three of them.
func (r *remote) block(i int64) ([]byte, error) {
	if content, read := r.blocks[i]; read {
		return content, nil
	}
	length := min(block, r.size-i*block)
	body, err := r.store.Get(r.ctx, r.key, i*block, length)
	if err != nil {
		return nil, err
	}
	content := make([]byte, length)
	n, err := io.ReadFull(body, content)
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // what a broken connection says may wrap them
		err = fmt.Errorf("%w: it has %d bytes, and had %d", store.ErrChanged, i*block+int64(n), r.size)
	}
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if r.blocks == nil {
		r.blocks = map[int64][]byte{}
	}
	r.blocks[i] = content
	return content, nil
}
