package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootsModule has the roots of trust of Mozilla. It is pinned and its content is in go.sum, so that two machines write the same
// file. The roots are a file, and not linked into the programs, because each of the many agents would be larger by them.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// roots returns the content of /etc/ssl/certs/ca-certificates.crt. A root that Mozilla trusts only for older certificates is left
// out: the file cannot say so, and its reader would trust the root without a limit.
func roots() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return all.Bytes()
}
