package s3

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// acceptEncoding is a header that Google Cloud Storage changes before it verifies the signature, as any proxy may: where it is
// signed, every request is refused.
const acceptEncoding = "Accept-Encoding"

// signer signs each attempt of a request as the SDK does, except for acceptEncoding, which is sent unsigned.
type signer struct{ s3.HTTPSignerV4 }

func (s signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payloadHash, service, region string, at time.Time, o ...func(*v4.SignerOptions)) error {
	sent := r.Header.Values(acceptEncoding)
	r.Header.Del(acceptEncoding)
	err := s.HTTPSignerV4.SignHTTP(ctx, c, r, payloadHash, service, region, at, o...)
	if len(sent) > 0 {
		r.Header[acceptEncoding] = sent
	}
	return err
}
