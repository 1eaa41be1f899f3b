package review

import (
	"net/http"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
)

// Token is what the Kubernetes API answered about a token.
type Token uint8

// The answers. Without a token there is none.
const (
	TokenNone    Token = 1 << iota
	TokenAllowed       // the caller may do what is needed
	TokenDenied        // the caller may not
	TokenInvalid       // Kubernetes does not know the token, or it ended
	TokenUnknown       // Kubernetes did not answer
	TokenLimited       // too many tokens were checked lately
)

func (t Token) String() string {
	return rules.Word(t, "none", "allowed", "denied", "invalid", "unknown", "not checked")
}

// Needs is the permission in Kubernetes that an action needs: on a resource, or on a path that is no resource.
type Needs struct {
	Verb, Group, Resource, Namespace, Name string
	Path                                   string
}

// String describes the permission as kubectl auth can-i takes it.
func (n Needs) String() string {
	if n.Path != "" {
		return n.Verb + " " + n.Path
	}
	resource := n.Resource + "." + n.Group
	if n.Name != "" {
		resource += "/" + n.Name
	}
	return n.Verb + " " + resource + " --namespace " + n.Namespace
}

// BearerOf returns the only token of the request, or nothing.
func BearerOf(r *http.Request) string {
	all := r.Header.Values("Authorization")
	if len(all) != 1 {
		return ""
	}
	scheme, bearer, _ := strings.Cut(all[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(bearer)
}
