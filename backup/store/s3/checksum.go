package s3

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// checksum computes CRC32C as S3 does: of the whole, or, where partSize is set, of the checksums of the parts. A nil
// checksum has nothing to compare with and finds nothing wrong.
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
		return fmt.Errorf("the store keeps the checksum CRC32C %s, the bytes have %s", c.want, got)
	}
	return nil
}
