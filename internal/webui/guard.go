package webui

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
)

// guard answers only the browser that was opened with the printed address. Other programs and web pages on this computer can reach
// the port too, and a web page can have a name that resolves to the loopback address.
type guard struct {
	// hosts are the values of the header Host that name this server.
	hosts []string
	// token opens a session once, and session is the value of the cookie then.
	token, session string
	used           atomic.Bool
	// cookie has the port in its name, for cookies do not belong to a port.
	cookie string
	// base begins each path, and is the path of the cookie. Browsers send a cookie to all ports of a host. Another server on this computer
	// does not get this one, for nothing asks it for a random path.
	base string
}

// newGuard guards the server at an address of the loopback interface.
func newGuard(address *net.TCPAddr) *guard {
	port := strconv.Itoa(address.Port)
	return &guard{
		hosts: []string{address.String(), "localhost:" + port}, cookie: "druid-ui-" + port,
		token: rand.Text(), session: rand.Text(), base: "/" + rand.Text(),
	}
}

// policy lets a page load what this server serves, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri " +
	"'none'; frame-ancestors 'none'"

// setHeaders sets the headers of all answers.
func setHeaders(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
	} {
		h.Set(name, value)
	}
}

// wrap lets only requests of the session pass to next. welcome answers the request that opens the session.
func (g *guard) wrap(next, welcome http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		token := r.URL.Query().Get("token")
		opens := r.URL.Path == g.base+"/" && token != ""
		switch {
		case !slices.Contains(g.hosts, r.Host):
			refuse(w, http.StatusForbidden, "The address names another server. Open the address that kubectl druid ui printed.")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "This page is read-only. To change a cluster, use kubectl druid.")
		case opens && r.Method == http.MethodGet && (g.isSession(r) || g.useToken(token)):
			http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: g.base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			welcome.ServeHTTP(w, r)
		case opens:
			refuse(w, http.StatusForbidden, "This address is wrong, or a browser opened it before. It opens one browser once. End kubectl druid ui, and start it again.")
		case !fromHere(r):
			refuse(w, http.StatusForbidden, "Another page asked for this one. Open the address that kubectl druid ui printed.")
		case !g.isSession(r):
			refuse(w, http.StatusForbidden, "This browser did not open the address that kubectl druid ui printed. Open it. If a browser opened it "+
				"before, end kubectl druid ui, and start it again.")
		default:
			http.StripPrefix(g.base, next).ServeHTTP(w, r)
		}
	})
}

func refuse(w http.ResponseWriter, code int, why string) { http.Error(w, why, code) }

// useToken says whether the token is right and was not used before.
func (g *guard) useToken(token string) bool {
	return same(token, g.token) && g.used.CompareAndSwap(false, true)
}

func (g *guard) isSession(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookie)
	return err == nil && same(cookie.Value, g.session)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// fromHere says whether a page of this server or the user asked. A server on another port is of the same site for a
// browser. Programs that are no browsers send no such header.
func fromHere(r *http.Request) bool {
	return slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site"))
}
