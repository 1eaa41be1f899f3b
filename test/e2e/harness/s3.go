package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// What an S3 server of a test is called, and by what it is entered.
const (
	s3Name      = "s3"
	s3Port      = 7070
	s3Region    = "us-east-1"
	s3AccessKey = "admin"
	s3SecretKey = "admin-secret"
	s3Health    = "/healthz"
)

// S3 is an S3 server in a Pod, in a namespace of its own.
type S3 struct {
	rig       *Rig
	namespace string
	podUID    string
	client    *s3.Client
}

// StartS3 starts an S3 server for the test. What is put into it goes with its Pod, at the end of the test.
func (r *Rig) StartS3(t testing.TB) *S3 {
	t.Helper()
	if err := r.Lab.LoadS3(t.Context()); err != nil {
		t.Fatalf("load the image of an S3 server: %v", err)
	}
	s := &S3{rig: r, namespace: r.MakeNamespace(t)}
	labels := map[string]string{"app": s3Name}
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: s3Name, Labels: labels}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Name: s3Name, Port: s3Port}},
	}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: s3Pod()}
	if err := r.Client.Create(t.Context(), service); err != nil {
		t.Fatalf("create Service %s: %v", s, err)
	}
	// A new namespace has no ServiceAccount for a moment, and no Pod can be created before.
	Eventually(t, maxWait, "Pod "+s.String()+" is created", func(ctx context.Context) error { return r.Client.Create(ctx, pod) })
	r.awaitContainer(t, pod)
	s.client, s.podUID = s.dialled(pod.Status.PodIP), string(pod.UID)
	return s
}

// s3Pod runs versitygw on a directory that goes with the Pod.
func s3Pod() corev1.PodSpec {
	args := []string{
		"--port", ":" + strconv.Itoa(s3Port), "--iam-dir", "/data/iam", "--health", s3Health, "--region", s3Region, "--keep-alive", "--quiet",
		"posix", "/data/buckets",
	}
	dirs := make([]corev1.VolumeMount, 0, 2)
	for _, dir := range []string{"iam", "buckets"} {
		dirs = append(dirs, corev1.VolumeMount{Name: "data", MountPath: "/data/" + dir, SubPath: dir})
	}
	var grace int64
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace, EnableServiceLinks: new(bool), AutomountServiceAccountToken: new(bool),
		SecurityContext: unprivilegedPod(),
		Containers: []corev1.Container{{
			Name: s3Name, Image: lab.S3Image, ImagePullPolicy: corev1.PullNever, Args: args, VolumeMounts: dirs,
			Env: []corev1.EnvVar{{Name: "ROOT_ACCESS_KEY", Value: s3AccessKey}, {Name: "ROOT_SECRET_KEY", Value: s3SecretKey}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: s3Health, Port: intstr.FromInt32(s3Port)}},
				PeriodSeconds: 1,
			},
			Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
			SecurityContext: unprivileged(),
		}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

// dialled is a client of the server at a Pod's address.
func (s *S3) dialled(ip string) *s3.Client {
	return s3.New(s3.Options{
		Region: s3Region, BaseEndpoint: aws.String("http://" + net.JoinHostPort(ip, strconv.Itoa(s3Port))), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s3AccessKey, s3SecretKey, ""),
		HTTPClient:  &http.Client{Transport: &http.Transport{DialContext: s.rig.Dial, DisableKeepAlives: true}},
	})
}

func (s *S3) String() string { return s.namespace + "/" + s3Name }

// MakeBucket makes a bucket.
func (s *S3) MakeBucket(t testing.TB, name string) {
	t.Helper()
	Eventually(t, maxWait, "bucket "+name, func(ctx context.Context) error {
		_, err := s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name})
		return err
	})
}

// MakeSecret puts the credentials into a namespace, for the clusters there.
func (s *S3) MakeSecret(t testing.TB, namespace string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s3Name},
		StringData: map[string]string{"accessKeyID": s3AccessKey, "secretAccessKey": s3SecretKey},
	}
	if err := s.rig.Client.Create(t.Context(), secret); err != nil {
		t.Fatalf("create Secret %s/%s: %v", namespace, s3Name, err)
	}
}

// Credentials are the ID and the secret of the access key.
func (s *S3) Credentials() (id, secret string) { return s3AccessKey, s3SecretKey }

// Put puts an object.
func (s *S3) Put(t testing.TB, bucket, key string, content []byte) {
	t.Helper()
	Eventually(t, maxWait, "object "+key, func(ctx context.Context) error {
		_, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(content)})
		return err
	})
}

// Get returns the content of an object.
func (s *S3) Get(t testing.TB, bucket, key string) (content []byte) {
	t.Helper()
	Eventually(t, maxWait, "object "+key, func(ctx context.Context) error {
		object, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return err
		}
		content, err = io.ReadAll(object.Body)
		return errors.Join(err, object.Body.Close())
	})
	return content
}

// Keys are the keys of the objects in a bucket that contain some words.
func (s *S3) Keys(t testing.TB, bucket, words string) (keys []string) {
	t.Helper()
	Eventually(t, maxWait, "the objects of bucket "+bucket, func(ctx context.Context) error {
		keys = nil
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &bucket})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return err
			}
			for _, object := range page.Contents {
				if strings.Contains(*object.Key, words) {
					keys = append(keys, *object.Key)
				}
			}
		}
		return nil
	})
	return keys
}

// Store is a bucket as an EtcdCluster names it, with the Secret of MakeSecret.
func (s *S3) Store(bucket string) v1alpha1.BackupStore {
	return v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
		Bucket: bucket, Region: s3Region, Endpoint: fmt.Sprintf("http://%s.%s.svc:%d", s3Name, s.namespace, s3Port), ForcePathStyle: true,
		CredentialsSecretRef: &v1alpha1.SecretRef{Name: s3Name},
	}}
}
