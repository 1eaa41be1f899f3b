package start

import (
	"net/http"
	"sync"
	"time"
)

// maxClockAge is how long ServerClock knows the time after a response. Each agent renews its Lease more often, and each renewal gets a
// response.
const maxClockAge = time.Minute

// ServerClock reads the clock of the API server from the header Date of its responses. It is another clock than that of the node, except
// on the machine of the API server. The zero value knows no time. It is safe for concurrent use.
type ServerClock struct {
	mu sync.Mutex
	// at is what the API server said, and read is when, by the monotonic clock.
	at, read time.Time
}

// Wrap returns a transport that reads the responses of next.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper { return &clockReader{c, next} }

// clockReader is a transport to the API server.
type clockReader struct {
	clock *ServerClock
	next  http.RoundTripper
}

// RoundTrip sends a request and reads the time in its response.
func (r *clockReader) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		r.clock.mu.Lock()
		defer r.clock.mu.Unlock()
		r.clock.at, r.clock.read = at, time.Now()
	}
	return response, nil
}

// Now returns the time of the API server, and false without a response of the last minute.
func (c *ServerClock) Now() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := time.Since(c.read)
	if c.at.IsZero() || since > maxClockAge {
		return time.Time{}, false
	}
	return c.at.Add(since), true
}
