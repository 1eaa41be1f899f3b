package bucket

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Client is the plain SDK as the administrator: it makes buckets, and sees what a store under test does not show.
func (s *Server) Client() *s3.Client {
	return s3.New(s3.Options{
		Region: Region, BaseEndpoint: aws.String(s.Endpoint), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	})
}

// Make makes a bucket; a versioned one keeps what is deleted or replaced, and can lock objects.
func (s *Server) Make(tb testing.TB, name string, versioned bool) string {
	tb.Helper()
	client := s.Client()
	in := &s3.CreateBucketInput{Bucket: aws.String(name)}
	if versioned {
		in.ObjectLockEnabledForBucket = aws.Bool(true)
	}
	if _, err := client.CreateBucket(tb.Context(), in); err != nil {
		tb.Fatalf("make bucket %s: %v", name, err)
	}
	if versioned {
		_, err := client.PutBucketVersioning(tb.Context(), &s3.PutBucketVersioningInput{
			Bucket: aws.String(name), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
		})
		if err != nil {
			tb.Fatalf("enable versioning of bucket %s: %v", name, err)
		}
	}
	return name
}

// Uploads counts the uploads in a bucket that are neither completed nor aborted.
func (s *Server) Uploads(tb testing.TB, name string) int {
	tb.Helper()
	out, err := s.Client().ListMultipartUploads(tb.Context(), &s3.ListMultipartUploadsInput{Bucket: aws.String(name)})
	if err != nil {
		tb.Fatalf("list the uploads of bucket %s: %v", name, err)
	}
	return len(out.Uploads)
}
