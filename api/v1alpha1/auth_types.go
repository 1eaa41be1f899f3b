package v1alpha1

// AuthSpec configures authentication in etcd: the users, and the keys that each of them can read and write.
//
// +kubebuilder:validation:XValidation:rule="!has(self.users) || self.users.all(u, !has(u.passwordKey)) || has(self.passwordsSecretRef)",message="auth.users with passwordKey need auth.passwordsSecretRef: it names the Secret with the passwords"
// +kubebuilder:validation:XValidation:rule="!has(self.users) || self.users.all(u, self.users.exists_one(v, (has(v.certificateCN) ? v.certificateCN : v.name) == (has(u.certificateCN) ? u.certificateCN : u.name)))",message="auth.users must be different users of etcd: the user is certificateCN, or name for a user with a password"
// +kubebuilder:validation:XValidation:rule="!has(self.users) || self.users.all(u, !has(u.roles) || u.roles.all(r, r == 'root' || (has(self.roles) && self.roles.exists(x, x.name == r))))",message="auth.users must have only roles of auth.roles, or root"
type AuthSpec struct {
	// enabled turns authentication on or off. While it is on, etcd lets a client read and write only what the roles of
	// its user permit. The leader's agent creates users and roles first, and then turns authentication on. When it is
	// turned off, users and roles remain in etcd.
	// +required
	Enabled bool `json:"enabled"`

	// passwordsSecretRef names the Secret with the passwords of users, in the namespace of the cluster. Change a
	// password by changing the Secret. A key root is the password of the user root. Without it, no client can act as
	// root with a password. To add, remove or replace this reference replaces the Pods, one at a time.
	// +optional
	PasswordsSecretRef *SecretRef `json:"passwordsSecretRef,omitempty"`

	// users of etcd. druid adds root and druid-agent. If you remove a user, it remains in etcd with its roles, and
	// status.auth.unknownUsers counts it. Remove its roles first, or delete it in etcd.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Users []AuthUser `json:"users,omitempty"`

	// roles of users. druid adds root, which permits everything. If you remove a role, it remains in etcd.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Roles []AuthRole `json:"roles,omitempty"`
}

// AuthUser is a user of etcd, who authenticates with a password or with a client certificate.
//
// +kubebuilder:validation:XValidation:rule="has(self.passwordKey) != has(self.certificateCN)",message="a user needs exactly one of passwordKey and certificateCN"
// +kubebuilder:validation:XValidation:rule="!(self.name in ['root', 'druid-agent']) && !(has(self.certificateCN) && self.certificateCN in ['root', 'druid-agent'])",message="a user must not be root or druid-agent: druid creates these users"
type AuthUser struct {
	// name of the user. It is the user of etcd if the user has a password.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Name string `json:"name"`

	// passwordKey is the key of the Secret with the password. A password has 1 to 72 bytes. etcd compares it as it is,
	// with a line break at its end if the Secret has one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	// +optional
	PasswordKey string `json:"passwordKey,omitempty"`

	// certificateCN is the common name of the client certificate. etcd takes it as the user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	CertificateCN string `json:"certificateCN,omitempty"`

	// roles of the user: roles of this spec, or root. The leader's agent takes other roles away.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Roles []string `json:"roles,omitempty"`
}

// AuthRole is a role of etcd.
//
// +kubebuilder:validation:XValidation:rule="self.name != 'root'",message="a role must not be root: it exists, and permits everything"
type AuthRole struct {
	// name of the role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Name string `json:"name"`

	// permissions of the role. The leader's agent takes other permissions away.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Permissions []AuthPermission `json:"permissions,omitempty"`
}

// AuthPermission permits the access to a key, to the keys with a prefix, or to a range of keys.
//
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || !self.prefix || !has(self.rangeEnd)",message="a permission must not have both prefix and rangeEnd"
// +kubebuilder:validation:XValidation:rule="self.key.size() > 0 || (has(self.prefix) && self.prefix)",message="a permission with an empty key needs prefix: true, and is for all keys"
// +kubebuilder:validation:XValidation:rule="!has(self.rangeEnd) || self.rangeEnd > self.key",message="rangeEnd must be greater than key: it is the first key after the range"
type AuthPermission struct {
	// key, or the first key of the range. It can be empty with prefix, for all keys.
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Key string `json:"key"`

	// rangeEnd is the first key after the range.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	RangeEnd string `json:"rangeEnd,omitempty"`

	// prefix extends the permission to all keys that begin with key.
	// +optional
	Prefix bool `json:"prefix,omitempty"`

	// type of the access.
	// +required
	Type AuthAccess `json:"type"`
}

// AuthAccess is what a permission permits.
//
// +kubebuilder:validation:Enum=Read;Write;ReadWrite
type AuthAccess string

// The kinds of access.
const (
	AuthRead      AuthAccess = "Read"
	AuthWrite     AuthAccess = "Write"
	AuthReadWrite AuthAccess = "ReadWrite"
)

// AuthStatus is the state of authentication in etcd, as the leader's agent last reported it.
type AuthStatus struct {
	// enabled says whether authentication is on.
	Enabled bool `json:"enabled"`
	// users is the number of users of spec.auth that etcd has.
	Users int32 `json:"users"`
	// unknownUsers is the number of other users that etcd has, except root and druid-agent. druid leaves them alone.
	UnknownUsers int32 `json:"unknownUsers"`
	// message says what the leader's agent waits for, or what you can do.
	// +optional
	Message string `json:"message,omitempty"`
}
