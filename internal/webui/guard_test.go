package webui

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestTheTokenOpensOneSession(t *testing.T) {
	s := serverOf(t, every())
	b := &browser{T: t, server: s}
	host, address := s.guard.hosts[0], s.URL()
	for _, wrong := range []string{"/", "/?token=", "/?token=wrong", "/clusters/serving/demo", "/live/fleet", "/assets/page.js",
		"/clusters/serving/demo?token=" + s.guard.token} {
		if code, text := b.get(wrong); code != http.StatusForbidden || strings.Contains(text, "demo") {
			t.Errorf("%s without a session: %d %s", wrong, code, text)
		}
	}
	if got := b.ask(http.MethodHead, address); got.code != http.StatusForbidden || got.cookie != nil {
		t.Errorf("HEAD opens a session: %d", got.code)
	}
	opened := b.ask(http.MethodGet, address, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }) // a link in a chat
	if opened.code != http.StatusOK || opened.cookie == nil {
		t.Fatalf("the address answers %d with the cookie %v", opened.code, opened.cookie)
	}
	says(t, opened.text, `http-equiv="refresh" content="0; url=/base/"`)
	cookie := opened.cookie
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/base/" || cookie.Domain != "" ||
		cookie.Value == s.guard.token || len(cookie.Value) < 26 {
		t.Errorf("the cookie is %v", cookie)
	}
	if code, text := b.get("/?token=" + s.guard.token); code != http.StatusForbidden || !strings.Contains(text, "opens one browser once") {
		t.Errorf("the token opens a second session: %d %s", code, text)
	}
	b.cookie = cookie
	if code, _ := b.get("/?token=" + s.guard.token); code != http.StatusOK {
		t.Errorf("a reload of the address in the same browser: %d", code)
	}
	if code, _ := b.get("/"); code != http.StatusOK {
		t.Errorf("with the cookie: %d", code)
	}
	b.cookie = &http.Cookie{Name: cookie.Name, Value: strings.ToLower(cookie.Value)}
	if code, _ := b.get("/"); code != http.StatusForbidden {
		t.Errorf("with another value of the cookie: %d", code)
	}
	if !strings.HasPrefix(address, "http://"+host+"/base/?token=") || !strings.HasPrefix(host, "127.0.0.1:") {
		t.Errorf("it prints %s", address)
	}
}

func TestOnlyRequestsOfThisPageAreAnswered(t *testing.T) {
	b := open(t, every())
	host := b.server.guard.hosts[0]
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		"this page":         {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, http.StatusOK},
		"the user":          {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, http.StatusOK},
		"localhost":         {func(r *http.Request) { r.Host = "localhost:" + port }, http.StatusOK},
		"HEAD":              {func(r *http.Request) { r.Method = http.MethodHead }, http.StatusOK},
		"another name":      {func(r *http.Request) { r.Host = "rebound.example.com:" + port }, http.StatusForbidden},
		"another port":      {func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusForbidden},
		"no port":           {func(r *http.Request) { r.Host = "127.0.0.1" }, http.StatusForbidden},
		"another site":      {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"another port's":    {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		http.MethodPost:     {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		http.MethodDelete:   {func(r *http.Request) { r.Method = http.MethodDelete }, http.StatusMethodNotAllowed},
		http.MethodOptions:  {func(r *http.Request) { r.Method = http.MethodOptions }, http.StatusMethodNotAllowed},
		"an unknown method": {func(r *http.Request) { r.Method = "PROPFIND" }, http.StatusMethodNotAllowed},
	} {
		got := b.ask(http.MethodGet, b.server.address("/clusters/serving/demo"), want.change)
		if got.code != want.code {
			t.Errorf("%s: %d, want %d", name, got.code, want.code)
		}
		if allow := got.header.Get("Allow"); want.code == http.StatusMethodNotAllowed && allow != "GET, HEAD" {
			t.Errorf("%s: Allow is %q", name, allow)
		}
	}
}

func TestEachAnswerHasTheHeaders(t *testing.T) {
	b := open(t, every())
	for _, path := range []string{"/", "/clusters/serving/demo", "/clusters/no/such", "/assets/page.js", "/assets/page.css", "/nothing", "/?token=wrong"} {
		h := b.ask(http.MethodGet, b.server.address(path)).header
		if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, h)
		}
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") ||
			!strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: %q", path, csp)
		}
	}
}

// A page that would need unsafe-inline is broken under the policy, and a resource of others is not loaded.
func TestPagesNeedOnlyWhatThePolicyAllows(t *testing.T) {
	b := open(t, every())
	for _, path := range []string{"/", "/clusters/quorum-lost-with-a-plan/demo", "/clusters/no/such", "/nothing"} {
		_, text := b.get(path)
		for _, bad := range []string{" style=", "<style", " onclick=", " onload=", "javascript:", `src="http`, "<img", "@import"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
		if strings.Count(text, "<script") != strings.Count(text, `<script src="/base/assets/`) {
			t.Errorf("%s has an inline script:\n%s", path, text)
		}
	}
}

func TestOnlyALoopbackAddressIsServed(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "192.0.2.1:1": false, "0.0.0.0:1": false} {
		parsed, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(Options{Source: every()}, fakeListener{address: parsed})
		if (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if u, err := url.Parse(serverOf(t, every()).URL()); err != nil || u.Hostname() != "127.0.0.1" {
		t.Errorf("%v, %v", u, err)
	}
}

// fakeListener has an address, and accepts nothing.
type fakeListener struct {
	net.Listener
	address net.Addr
}

func (l fakeListener) Addr() net.Addr { return l.address }

// Browsers send a cookie to each port of a host, so only its path keeps it from other servers.
func TestACookieIsOfARandomPath(t *testing.T) {
	ends := map[string]bool{}
	for range 2 {
		s, err := New(Options{Source: every()}, fakeListener{address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}})
		if err != nil {
			t.Fatal(err)
		}
		base := s.guard.base
		ends[base] = true
		b := &browser{T: t, server: s}
		opened := b.ask(http.MethodGet, s.URL())
		if opened.cookie == nil || opened.cookie.Path != base+"/" || len(base) < 27 {
			t.Fatalf("the cookie is %v, the path %q", opened.cookie, base)
		}
		b.cookie = opened.cookie
		if got := b.ask(http.MethodGet, "http://"+s.guard.hosts[0]+"/assets/page.js"); got.code == http.StatusOK {
			t.Error("a path without the random one is answered")
		}
		if code, _ := b.get("/assets/page.js"); code != http.StatusOK {
			t.Errorf("%d below the random path", code)
		}
	}
	if len(ends) != 2 {
		t.Errorf("the paths are %v", ends)
	}
}
