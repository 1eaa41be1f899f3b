package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
)

var featureMetric = regexp.MustCompile(`(?m)^etcd_server_feature_enabled\{name="(\w+)",.*\} ([01])$`)

// Features are the feature gates of a member's etcd, from 3.6 on, as its metrics report.
func (c *Cluster) Features(t testing.TB, member string) map[string]bool {
	t.Helper()
	features := map[string]bool{}
	Eventually(t, maxWait, "the metrics of "+member, func(ctx context.Context) error {
		metrics, err := c.metrics(ctx, member)
		for _, m := range featureMetric.FindAllStringSubmatch(metrics, -1) {
			features[m[1]] = m[2] == "1"
		}
		return err
	})
	return features
}

func (c *Cluster) metrics(ctx context.Context, member string) (string, error) {
	return c.page(ctx, member, config.MetricsPort, "/metrics")
}

// page is what a member serves in plain HTTP.
func (c *Cluster) page(ctx context.Context, member string, port int, path string) (string, error) {
	return fetchPage(ctx, c.dialer.dial, net.JoinHostPort(member, strconv.Itoa(port)), path)
}

func fetchPage(ctx context.Context, dial func(ctx context.Context, address string) (net.Conn, error), host, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", path, host, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s: %s", path, host, response.Status, body)
	}
	return string(body), err
}
