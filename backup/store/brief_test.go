package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// inBucket is a store of which only the name matters.
type inBucket struct{ Store }

func (inBucket) String() string { return "bucket b at http://s" }

func TestBriefHasNoDetailsOfAnAttempt(t *testing.T) {
	at := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: port} }
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: at(7070), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "read", Net: "tcp", Source: at(40123), Addr: at(7070), Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"none":          {nil, ""},
		"nothing of it": {fmt.Errorf("read the revision of etcd: %w", context.DeadlineExceeded), "read the revision of etcd: context deadline exceeded"},
		"an address":    {fmt.Errorf("list: %w; check it", refused), "list: dial tcp: connect: connection refused; check it"},
		"a local port":  {reset, "read tcp: read: connection reset by peer"},
		"a host that is not found": {&net.DNSError{Err: "no such host", Name: "s3.local", Server: "10.0.0.10:53", IsNotFound: true},
			"lookup s3.local on 10.0.0.10:53: no such host"},
		"a server of names that is silent": {
			&net.DNSError{Err: "read udp 10.0.0.7:40123->10.0.0.10:53: i/o timeout", Name: "s3.local", Server: "10.0.0.10:53", IsTimeout: true},
			"lookup s3.local on 10.0.0.10:53: i/o timeout"},
		"the path and the query of a URL": {&url.Error{Op: "Put", URL: "http://s:7070/b/full/000004d2-1?partNumber=1&uploadId=5f1c", Err: refused},
			"Put http://s:7070: dial tcp: connect: connection refused"},
		"a temporary file": {fmt.Errorf("%w; expand the volume", Failed("put", "ns/full/.put-X7-1", inBucket{}, &fs.PathError{
			Op: "openat", Path: "ns/full/.put-X7-1", Err: syscall.ENOSPC})),
			"put ns/full/… in bucket b at http://s: openat ns/full/…: no space left on device; expand the volume"},
		"a file of credentials": {fmt.Errorf("read the credentials: %w", &fs.PathError{Op: "open", Path: "/creds/accessKeyID", Err: syscall.ENOENT}),
			"read the credentials: open /creds/accessKeyID: no such file or directory"},
		"a link to a temporary file": {&os.LinkError{Op: "linkat", Old: ".put-X7-1", New: "1", Err: syscall.EIO}, "linkat: input/output error"},
		"an object that exists": {Failed("get", "ns/full/1", inBucket{}, ErrForbidden),
			"get ns/full/1 in bucket b at http://s: access denied"},
		"no object": {Failed("look up", "the bucket", inBucket{}, ErrForbidden), "look up the bucket in bucket b at http://s: access denied"},
		"several errors": {errors.Join(Caused(CauseUnreachable, refused), reset),
			"dial tcp: connect: connection refused\nread tcp: read: connection reset by peer"},
		"an empty message": {fmt.Errorf("list: %w", errors.New("")), "list: "},
	} {
		if got := Brief(test.err); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
