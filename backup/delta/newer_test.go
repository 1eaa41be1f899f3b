package delta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
)

// A delta of a newer format is sound as far as this reader can know, whatever stands in it.
func TestADeltaOfANewerFormatIsNoDamage(t *testing.T) {
	newer := func(text string, version uint32) []byte {
		b := appendFrame(nil, headerFixed+len(text), magicHeader)
		b = append(binary.LittleEndian.AppendUint32(b, version), text...)
		b = binary.LittleEndian.AppendUint32(b, checksum(b[frameHeader:]))
		return append(b, "blocks of another kind"...)
	}
	_, _, err := read(bytes.NewReader(newer("no JSON", Version+1)), Expected{Object: "x"})
	if _, damaged := errors.AsType[*DamagedError](err); damaged || !errors.Is(err, store.ErrNewer) || !strings.HasPrefix(err.Error(), "delta x ") {
		t.Errorf("got %v, want ErrNewer that names the delta", err)
	}
	_, _, err = read(bytes.NewReader(newer("{}", 0)), Expected{Object: "x"})
	if _, damaged := errors.AsType[*DamagedError](err); !damaged {
		t.Errorf("a version that never was: got %v, want a DamagedError", err)
	}
}
