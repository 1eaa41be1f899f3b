package chain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Lineage names one unforked history: <epoch:08x>-<nonce>. A new one begins whenever a cluster is formed again, also by a
// restore.
type Lineage string

const (
	epochDigits = 8
	maxNonce    = 64
)

// ParseLineage refuses what is no lineage: eight lower-case hexadecimal digits, a dash, and up to 64 lower-case letters
// and digits.
func ParseLineage(s string) (Lineage, error) {
	epoch, nonce, found := strings.Cut(s, "-")
	if !found || len(epoch) != epochDigits || !isHex(epoch) || nonce == "" || len(nonce) > maxNonce || strings.ContainsFunc(nonce, isNoNonce) {
		return "", fmt.Errorf("%q is no lineage: want <epoch, %d hexadecimal digits>-<nonce>", s, epochDigits)
	}
	return Lineage(s), nil
}

// Epoch counts the bootstraps of the cluster; 0 for what ParseLineage would refuse.
func (l Lineage) Epoch() uint32 {
	epoch, _, _ := strings.Cut(string(l), "-")
	n, err := strconv.ParseUint(epoch, 16, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// Compare orders by epoch, and by nonce where two histories claim the same epoch; that order means nothing, but is one.
func (l Lineage) Compare(m Lineage) int {
	return cmp.Or(cmp.Compare(l.Epoch(), m.Epoch()), cmp.Compare(l, m))
}

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

func isNoNonce(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') }
