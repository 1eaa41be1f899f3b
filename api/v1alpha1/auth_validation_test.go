package v1alpha1_test

// authenticated is a cluster with TLS of both planes and the given spec.auth.
func authenticated(auth object) []edit {
	return append(secure(object{"client": automatic(), "peer": automatic()}), edit{"spec.auth", auth})
}

func users(list ...any) object {
	return object{"enabled": true, "passwordsSecretRef": object{"name": "users"}, "users": list, "roles": []any{object{"name": "app"}}}
}

func permissions(list ...any) object {
	return object{"enabled": true, "roles": []any{object{"name": "app", "permissions": list}}}
}

const authNeedsTLS = "auth.enabled needs tls.client with mode Mutual, and tls.peer"

var badAuth = map[string]refusal{
	"authentication without TLS":            {append(secure(nil), edit{"spec.auth", object{"enabled": true}}), authNeedsTLS},
	"authentication without TLS of peers":   {append(secure(object{"client": automatic()}), edit{"spec.auth", object{"enabled": true}}), authNeedsTLS},
	"authentication without TLS of clients": {append(secure(object{"peer": automatic()}), edit{"spec.auth", object{"enabled": true}}), authNeedsTLS},
	"authentication without certificates": {append(secure(object{"client": object{"auto": object{}, "mode": "ServerOnly"}, "peer": automatic()}),
		edit{"spec.auth", object{"enabled": true}}), authNeedsTLS},
	"a user without a way to authenticate": {authenticated(users(object{"name": "a"})), "a user needs exactly one of passwordKey and certificateCN"},
	"a user with two ways": {authenticated(users(object{"name": "a", "passwordKey": "a", "certificateCN": "a"})),
		"a user needs exactly one of"},
	"a user called root": {authenticated(users(object{"name": "root", "passwordKey": "a"})), "a user must not be root or druid-agent"},
	"a certificate of druid-agent": {authenticated(users(object{"name": "a", "certificateCN": "druid-agent"})),
		"a user must not be root or druid-agent"},
	"a user twice": {authenticated(users(object{"name": "a", "passwordKey": "a"}, object{"name": "a", "passwordKey": "b"})),
		"Duplicate value"},
	"two users that are one in etcd": {authenticated(users(object{"name": "a", "passwordKey": "a"}, object{"name": "b", "certificateCN": "a"})),
		"auth.users must be different users of etcd"},
	"a role that is not there": {authenticated(users(object{"name": "a", "passwordKey": "a", "roles": []any{"x"}})),
		"auth.users must have only roles of auth.roles, or root"},
	"a password without a Secret": {authenticated(object{"enabled": true, "users": []any{object{"name": "a", "passwordKey": "a"}}}),
		"auth.users with passwordKey need auth.passwordsSecretRef"},
	"a key that no Secret can have": {authenticated(users(object{"name": "a", "passwordKey": "a/b"})), "spec.auth.users[0].passwordKey"},
	"a role called root":            {authenticated(object{"enabled": true, "roles": []any{object{"name": "root"}}}), "a role must not be root"},
	"a permission of an unknown type": {authenticated(permissions(object{"key": "a", "type": "Execute"})),
		`supported values: "Read", "Write", "ReadWrite"`},
	"a permission with a prefix and an end": {authenticated(permissions(object{"key": "a", "prefix": true, "rangeEnd": "b", "type": "Read"})),
		"a permission must not have both prefix and rangeEnd"},
	"a permission for no key": {authenticated(permissions(object{"key": "", "type": "Read"})),
		"a permission with an empty key needs prefix: true"},
	"a permission with an end before its key": {authenticated(permissions(object{"key": "b", "rangeEnd": "a", "type": "Read"})),
		"rangeEnd must be greater than key"},
}

var goodAuth = map[string][]edit{
	"authentication":             authenticated(object{"enabled": true}),
	"authentication that is off": append(secure(nil), edit{"spec.auth", object{"enabled": false}}),
	"users with passwords and with names": authenticated(
		users(object{"name": "a", "passwordKey": "a.b_c-d", "roles": []any{"app", "root"}}, object{"name": "b", "certificateCN": "b"})),
	"permissions for a key, a range, and all": authenticated(permissions(
		object{"key": "a", "type": "Read"}, object{"key": "a", "rangeEnd": "b", "type": "Write"}, object{"key": "", "prefix": true, "type": "ReadWrite"})),
}

// authChanges are changes of spec.auth and spec.tls together.
var authChanges = map[string]struct {
	before, after []edit
	want          string
}{
	"authentication is turned on":  {secure(object{"client": automatic(), "peer": automatic()}), authenticated(object{"enabled": true}), ""},
	"authentication is turned off": {authenticated(object{"enabled": true}), authenticated(object{"enabled": false}), ""},
	"authentication is not managed any more": {
		authenticated(object{"enabled": true}), secure(object{"client": automatic(), "peer": automatic()}), "",
	},
	"TLS goes together with authentication": {
		authenticated(object{"enabled": true}), secure(object{"peer": automatic()}), "tls.client with mode Mutual and tls.peer must stay while auth.enabled is true",
	},
}
