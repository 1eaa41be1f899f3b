package v1alpha1_test

type object = map[string]any

// secure is the valid cluster with the given spec.tls, without what it cannot be combined with.
func secure(tls object) []edit {
	if tls == nil {
		return []edit{{"spec.bootstrap", nil}}
	}
	return []edit{{"spec.bootstrap", nil}, {"spec.tls", tls}}
}

func automatic() object { return object{"auto": object{}} }

func secret(name string) object { return object{"secretRef": object{"name": name}} }

var badTLS = map[string]refusal{
	"TLS of nothing":                  {secure(object{}), "spec.tls needs client or peer"},
	"TLS of clients without a source": {secure(object{"client": object{"mode": "Mutual"}}), "tls.client needs exactly one source: auto, secretRef or certManager"},
	"TLS of clients from two sources": {secure(object{"client": object{"auto": object{}, "secretRef": object{"name": "a"}}}),
		"tls.client needs exactly one source"},
	"TLS of clients from all sources": {
		secure(object{"client": object{"auto": object{}, "secretRef": object{"name": "a"}, "certManager": issuer("a")}}), "tls.client needs exactly one source",
	},
	"an issuer without a name":          {secure(object{"peer": object{"certManager": object{"issuerRef": object{}}}}), "issuerRef.name: Required value"},
	"no issuer":                         {secure(object{"peer": object{"certManager": object{}}}), "certManager.issuerRef: Required value"},
	"too short a life for cert-manager": {secure(object{"peer": object{"certManager": timed("leafLifetime", "59m")}}), "leafLifetime must be a duration from 1h"},
	"too late a renewal": {secure(object{"peer": object{"certManager": timed("renewBefore", "4m")}}),
		"renewBefore must be a duration of at least 5m"},
	"a renewal before the beginning": {secure(object{"peer": object{"certManager": timed("renewBefore", "2160h")}}),
		"renewBefore must be shorter than leafLifetime"},
	"TLS of peers without a source": {secure(object{"peer": object{}}), "tls.peer needs exactly one source"},
	"TLS of peers from two sources": {secure(object{"peer": object{"auto": object{}, "secretRef": object{"name": "a"}}}), "tls.peer needs exactly one source"},
	"a Secret without a name":       {secure(object{"peer": object{"secretRef": object{}}}), "spec.tls.peer.secretRef.name: Required value"},
	"a Secret with an empty name":   {secure(object{"peer": secret("")}), "should be at least 1 chars long"},
	"an unknown mode of TLS":        {secure(object{"client": object{"auto": object{}, "mode": "Optional"}}), `supported values: "Mutual", "ServerOnly"`},
	"plain text with TLS, or not":   {secure(object{"client": object{"auto": object{}, "plaintext": "Maybe"}}), `supported values: "Allow", "Deny"`},
	"a lifetime of seconds": {secure(object{"peer": object{"auto": object{"leafLifetime": "119s"}}}),
		"leafLifetime must be a duration from 2m to 43800h"},
	"a lifetime of decades": {secure(object{"peer": object{"auto": object{"leafLifetime": "43801h"}}}),
		"leafLifetime must be a duration from 2m to 43800h"},
	"a lifetime of days": {secure(object{"peer": object{"auto": object{"leafLifetime": "90d"}}}), "leafLifetime must be a duration"},
	"a name that is none": {secure(object{"client": object{"auto": object{}, "extraSANs": []any{"not a name"}}}),
		"tls.client.extraSANs must be DNS names in lower case"},
	"a URL for a name": {secure(object{"client": object{"auto": object{}, "extraSANs": []any{"https://etcd.example.com"}}}),
		"tls.client.extraSANs must be DNS names"},
	"a wildcard in the middle": {secure(object{"client": object{"auto": object{}, "extraSANs": []any{"etcd.*.example.com"}}}),
		"tls.client.extraSANs must be DNS names"},
	"names for a certificate of a user": {secure(object{"client": object{"secretRef": object{"name": "a"}, "extraSANs": []any{"a.example.com"}}}),
		"tls.client.extraSANs needs tls.client.auto"},
	"clients of a user's authority": {secure(
		object{"client": object{"secretRef": object{"name": "a"}, "clients": []any{object{"name": "a", "commonName": "a"}}}}),
		"tls.client.clients needs tls.client.auto"},
	"a client that is root": {secure(object{"client": object{"auto": object{}, "clients": []any{object{"name": "a", "commonName": "root"}}}}),
		"commonName must not be root or druid-agent"},
	"a client with a name of druid": {secure(object{"client": object{"auto": object{}, "clients": []any{object{"name": "tls", "commonName": "a"}}}}),
		"name must differ from what druid calls its own Secrets"},
	"a client twice": {secure(
		object{"client": object{"auto": object{}, "clients": []any{object{"name": "a", "commonName": "a"}, object{"name": "a", "commonName": "b"}}}}),
		"Duplicate value"},
}

var goodTLS = map[string][]edit{
	"TLS of cert-manager": secure(object{
		"client": object{"certManager": object{"issuerRef": object{"name": "a"}, "leafLifetime": "1h", "renewBefore": "5m"},
			"extraSANs": []any{"a.example.com"}, "clients": []any{object{"name": "a", "commonName": "a"}}},
		"peer": object{"certManager": object{"issuerRef": object{"name": "a", "kind": "ClusterIssuer", "group": "cert-manager.io"}}},
	}),
	"TLS of both planes":     secure(object{"client": automatic(), "peer": automatic()}),
	"TLS of clients alone":   secure(object{"client": object{"auto": object{}, "mode": "ServerOnly"}}),
	"TLS of peers alone":     secure(object{"peer": object{"auto": object{"leafLifetime": "720h"}}}),
	"certificates of a user": secure(object{"client": secret("clients"), "peer": object{"secretRef": object{"name": "peers", "clientName": "peers-client"}}}),
	"names and addresses": secure(object{
		"client": object{"auto": object{}, "extraSANs": []any{"etcd.example.com", "*.etcd.example.com", "203.0.113.7", "2001:db8::7", "localhost"}}}),
	"clients of their own": secure(object{
		"client": object{"auto": object{}, "clients": []any{object{"name": "a", "commonName": "a", "organizations": []any{"x"}}}}}),
	"the shortest lifetime":   secure(object{"peer": object{"auto": object{"leafLifetime": "2m"}}}),
	"TLS of a restored one":   {{"spec.tls", object{"client": automatic(), "peer": automatic()}}},
	"a lifetime in two units": secure(object{"peer": object{"auto": object{"leafLifetime": "1h30m"}}}),
}

// tlsChanges are changes of spec.tls. Certificates of another issuer would cut members and clients off.
var tlsChanges = map[string]struct {
	before, after object
	want          string // empty: accepted
}{
	"TLS after the bootstrap":    {nil, object{"client": automatic()}, ""},
	"no TLS any more":            {object{"client": automatic()}, nil, ""},
	"TLS of peers later":         {object{"client": automatic()}, object{"client": automatic(), "peer": automatic()}, ""},
	"no TLS of clients any more": {object{"client": automatic(), "peer": automatic()}, object{"peer": automatic()}, ""},
	"plain text with TLS":        {object{"client": automatic()}, object{"client": object{"auto": object{}, "plaintext": "Allow"}}, ""},
	"another source of clients":  {object{"client": automatic()}, object{"client": secret("a")}, "the source of tls.client must not change"},
	"another source of peers":    {object{"peer": secret("a")}, object{"peer": automatic()}, "the source of tls.peer must not change"},
	"another issuer": {object{"peer": object{"certManager": issuer("a")}}, object{"peer": object{"certManager": issuer("b")}},
		"the source of tls.peer must not change"},
	"an issuer for a Secret": {object{"peer": secret("a")}, object{"peer": object{"certManager": issuer("a")}}, "the source of tls.peer must not change"},
	"another Secret":         {object{"peer": secret("a")}, object{"peer": secret("b")}, "the source of tls.peer must not change"},
	"another mode": {object{"client": automatic()}, object{"client": object{"auto": object{}, "mode": "ServerOnly"}},
		"tls.client.mode must not change"},
	"another lifetime":             {object{"peer": automatic()}, object{"peer": object{"auto": object{"leafLifetime": "720h"}}}, ""},
	"another name":                 {object{"client": automatic()}, object{"client": object{"auto": object{}, "extraSANs": []any{"etcd.example.com"}}}, ""},
	"the same, with what defaults": {object{"client": automatic()}, object{"client": object{"auto": object{"leafLifetime": "2160h"}, "mode": "Mutual"}}, ""},
}

// issuer is a source of certificates from an issuer of cert-manager.
func issuer(name string) object { return object{"issuerRef": object{"name": name}} }

// timed is issuer with a time.
func timed(field, value string) object {
	o := issuer("a")
	o[field] = value
	return o
}
