package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// s3Program is the process of the S3 server.
const s3Program Program = "versitygw"

// process is the one of the S3 server's Pod.
func (s *S3) process(t testing.TB) (pid int) {
	t.Helper()
	Eventually(t, maxWait, "the process of the S3 server "+s.String(), func(context.Context) error {
		pids, err := Processes(s.podUID, s3Program)
		if err != nil {
			return err
		}
		if len(pids) != 1 {
			return fmt.Errorf("processes %v", pids)
		}
		pid = pids[0]
		return nil
	})
	return pid
}

// Freeze stops the server with all that it holds, as a store behind a dead load balancer: connections hang, and new ones get no answer.
// It answers again after thaw, which may be called more than once.
func (s *S3) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	pid := s.process(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze S3 server %s: %v", s, err)
	}
	Eventually(t, maxWait, "the S3 server is stopped", func(context.Context) error { return Stopped(pid) })
	thaw = sync.OnceFunc(func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Errorf("thaw S3 server %s: %v", s, err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}

// Revoke makes the ID of the access key in the Secret of a namespace one that the store does not know. restore makes it right again.
func (s *S3) Revoke(t testing.TB, namespace string) (restore func()) {
	t.Helper()
	set := func(id string) {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s3Name}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData":{"accessKeyID":%q}}`, id))
		if err := s.rig.Client.Patch(t.Context(), object, patch); err != nil {
			t.Fatalf("patch Secret %s/%s: %v", namespace, s3Name, err)
		}
	}
	set("revoked")
	return func() { set(s3AccessKey) }
}

// Copy copies the objects of a bucket to a directory, where they have their keys as names.
func (s *S3) Copy(t testing.TB, bucket, to string) {
	t.Helper()
	from := filepath.Join("/proc", strconv.Itoa(s.process(t)), "root/data/buckets", bucket)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatalf("copy bucket %s of S3 server %s: %v", bucket, s, err)
	}
}

// Flip turns a bit in the middle of an object over, on the server's disk: neither its name nor its size report.
func (s *S3) Flip(t testing.TB, bucket, key string) {
	t.Helper()
	path := filepath.Join("/proc", strconv.Itoa(s.process(t)), "root/data/buckets", bucket, key)
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		t.Fatalf("read object %s of S3 server %s: %d bytes, %v", key, s, len(content), err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("open object %s of S3 server %s: %v", key, s, err)
	}
	defer file.Close()
	at := len(content) / 2
	if _, err := file.WriteAt([]byte{content[at] ^ 1}, int64(at)); err != nil {
		t.Fatalf("damage object %s of S3 server %s: %v", key, s, err)
	}
}
