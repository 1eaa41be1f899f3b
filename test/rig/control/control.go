// Package control carries orders from the rig's clients to its supervisor: a
// verb with arguments over a Unix socket in the run's directory, answered by a
// text or an error. Who can open the socket is root on this machine already.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

type request struct{ Args []string }

type response struct{ Output, Error string }

// Handler carries out one verb.
type Handler func(ctx context.Context, args []string) (string, error)

// Serve answers calls on a socket until ctx ends.
func Serve(ctx context.Context, socket string, verbs map[string]Handler) error {
	_ = os.Remove(socket)
	address, done, err := addressOf(socket)
	if err != nil {
		return fmt.Errorf("take orders: %w", err)
	}
	defer done()
	l, err := net.Listen("unix", address)
	if err != nil {
		return fmt.Errorf("take orders: %w", err)
	}
	mux := http.NewServeMux()
	for verb, h := range verbs {
		mux.HandleFunc("POST /"+verb, func(w http.ResponseWriter, r *http.Request) {
			var req request
			var resp response
			err := json.NewDecoder(r.Body).Decode(&req)
			if err == nil {
				resp.Output, err = h(r.Context(), req.Args)
			}
			if err != nil {
				resp.Error = err.Error()
			}
			_ = json.NewEncoder(w).Encode(resp) // the client is gone: nothing to report to
		})
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("take orders: %w", err)
		}
		return nil
	})
	g.Go(func() error { <-ctx.Done(); return srv.Close() })
	return g.Wait()
}

// maxAddress is the longest path that the kernel takes for a unix socket.
const maxAddress = 107

// addressOf is a short path of a socket that may have a long one, for a cache
// directory is wherever its user's home is: the socket's directory by its
// descriptor, which is open until done is called.
func addressOf(socket string) (address string, done func(), err error) {
	if len(socket) <= maxAddress {
		return socket, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)), func() { _ = dir.Close() }, nil
}

// Call gives an order and returns its answer.
func Call(ctx context.Context, socket, verb string, args ...string) (string, error) {
	address, done, err := addressOf(socket)
	if err != nil {
		return "", fmt.Errorf("reach the rig's supervisor: %w", err)
	}
	defer done()
	body, err := json.Marshal(request{args})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://rig/"+verb, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		},
	}}
	r, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("reach the rig's supervisor: %w", err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the rig's supervisor does not know %q: it runs an older version; take the rig down and up", verb)
	}
	var resp response
	if err := json.NewDecoder(r.Body).Decode(&resp); err != nil {
		return "", fmt.Errorf("read the answer of the rig's supervisor: %w", err)
	}
	if resp.Error != "" {
		return "", errors.New(resp.Error)
	}
	return resp.Output, nil
}
