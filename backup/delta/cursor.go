package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// cursor is how far a delta was read, and checks that what follows follows.
type cursor struct {
	header *Header
	// main and sub are those of the last record, at the time of its revision.
	main, sub int64
	at        int64
	events    int64
	digest    Digester
}

// smallest entry of a block: the lengths of a record's key and value in a byte each, the key, and a value of a key of one byte.
const smallestRecord = 1 + keyLength + 1 + 1

// timeLength of a time mark: a zero where a record's length would stand, and Unix milliseconds.
const timeLength = 1 + 8

var errRunsOver = errors.New("a record runs over the end of its block")

// block parses a block's content. The records point into it.
func (c *cursor) block(h blockHeader, plain []byte) ([]Record, error) {
	if h.records == 0 || int(h.records) > len(plain)/smallestRecord {
		return nil, fmt.Errorf("a block of %d bytes says to hold %d records", len(plain), h.records)
	}
	if len(plain) == 0 || plain[0] != 0 {
		return nil, errors.New("a block does not begin with a time")
	}
	batch := make([]Record, 0, h.records)
	ms := c.at // of the last mark, which counts from the next revision on
	for len(plain) > 0 {
		if plain[0] == 0 {
			var err error
			if ms, plain, err = c.time(plain); err != nil {
				return nil, err
			}
			continue
		}
		r, rest, err := c.record(plain, ms)
		if err != nil {
			return nil, err
		}
		batch, plain = append(batch, r), rest
	}
	if len(batch) != int(h.records) || batch[0].Revision != h.first || c.main != h.last {
		return nil, fmt.Errorf("a block holds %d records to revision %d, its header says %d, of revisions %d to %d",
			len(batch), c.main, h.records, h.first, h.last)
	}
	return batch, nil
}

func (c *cursor) time(plain []byte) (int64, []byte, error) {
	if len(plain) < timeLength {
		return 0, nil, errRunsOver
	}
	ms := int64(binary.BigEndian.Uint64(plain[1:]))
	if ms < c.at {
		return 0, nil, errors.New("time goes back")
	}
	return ms, plain[timeLength:], nil
}

func (c *cursor) record(plain []byte, ms int64) (Record, []byte, error) {
	key, plain, err := field(plain)
	if err != nil {
		return Record{}, nil, err
	}
	value, plain, err := field(plain)
	if err != nil {
		return Record{}, nil, err
	}
	main, sub, err := parseKey(key)
	if err != nil {
		return Record{}, nil, err
	}
	if err := c.advance(main, sub, ms); err != nil {
		return Record{}, nil, err
	}
	if main == c.header.To {
		c.digest.Add(key, value)
	}
	c.events++
	return Record{Key: key, Value: value, Revision: main, At: time.UnixMilli(c.at)}, plain, nil
}

func (c *cursor) advance(main, sub, ms int64) error {
	next := c.main + 1
	if c.events == 0 {
		next = c.header.From
	}
	switch {
	case main > c.header.To:
		return fmt.Errorf("revision %d is in it, and its header says that %d is the last", main, c.header.To)
	case c.events > 0 && main == c.main && sub == c.sub+1:
	case main == next && sub == 0:
		c.at = ms
	default:
		return fmt.Errorf("revision %d, sub-revision %d, follows revision %d, sub-revision %d", main, sub, c.main, c.sub)
	}
	c.main, c.sub = main, sub
	return nil
}

// done compares what was read with what the header said.
func (c *cursor) done(blocks int64) error {
	switch h := c.header; {
	case c.main != h.To || c.events != h.Events || blocks != h.Blocks:
		return fmt.Errorf("it holds %d events in %d blocks up to revision %d, its header says %d in %d up to %d",
			c.events, blocks, c.main, h.Events, h.Blocks, h.To)
	case c.digest.Sum() != h.Last:
		return fmt.Errorf("the digest of its last revision is %s, its header says %s", c.digest.Sum(), h.Last)
	}
	return nil
}

// field takes a length and as many bytes.
func field(b []byte) (value, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > math.MaxInt32 || int(n) > len(b)-used {
		return nil, nil, errRunsOver
	}
	end := used + int(n)
	return b[used:end:end], b[end:], nil
}
