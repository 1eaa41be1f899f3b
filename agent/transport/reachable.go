package transport

import (
	"context"
	"fmt"
	"net"
)

// Reach says whether something accepts a TCP connection at address, host and port; nil if so. It speaks no protocol. etcd's
// client waits out its backoff where no one listens yet; anyone who polls asks here first.
func (t Transport) Reach(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("reach %s: %w", address, err)
	}
	_ = conn.Close()
	return nil
}
