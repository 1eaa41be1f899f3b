package v1alpha1

// BackupStore is a bucket or a directory.
//
// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.directory)",message="exactly one of s3 and directory must be set"
type BackupStore struct {
	// s3 is a bucket of AWS S3 or of a compatible store.
	// +optional
	S3 *S3Store `json:"s3,omitempty"`
	// directory is a volume that the Pods of all members mount.
	// +optional
	Directory *DirectoryStore `json:"directory,omitempty"`
}

// S3Store is a bucket.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sse) || self.sse.mode != 'CustomerKey' || !has(self.endpoint) || self.endpoint.startsWith('https://')",message="sse.mode CustomerKey needs an https endpoint: otherwise the agent would send the key in plain text"
type S3Store struct {
	// bucket is the name of an existing bucket.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9][a-zA-Z0-9._-]*$')",message="bucket must be the name of a bucket: put a path into prefix, a host into endpoint"
	// +required
	Bucket string `json:"bucket"`

	// prefix of all keys, without slashes at its ends.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_-][a-zA-Z0-9._-]*(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*)*$')",message="prefix must be words of letters, digits, dots, dashes and underscores between slashes, like backups/etcd"
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// region of the bucket. For a store without regions, use the value from its documentation, usually us-east-1.
	// Defaults to us-east-1.
	// +kubebuilder:default=us-east-1
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Region string `json:"region,omitempty"`

	// endpoint is the URL of a store other than AWS, or of a private endpoint of AWS.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",message="endpoint must be a URL like https://s3.example.com:9000"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// forcePathStyle puts the bucket into the path of the URL instead of the host name. Most stores other than AWS
	// need it.
	// +optional
	ForcePathStyle bool `json:"forcePathStyle,omitempty"`

	// credentialsSecretRef names a Secret in the namespace of the cluster with the entries accessKeyID and
	// secretAccessKey, and optionally sessionToken. The names AWS_ACCESS_KEY_ID and so on work too. The agent reads
	// the Secret for each request, so you can change credentials at any time. If not set, the agent uses the ambient
	// identity: web identity, Pod identity or the identity of the node. Put the annotations that these need on the
	// ServiceAccount <name>-agent.
	// +optional
	CredentialsSecretRef *SecretRef `json:"credentialsSecretRef,omitempty"`

	// caSecretRef names the PEM certificates that the agent trusts instead of those in its image.
	// +optional
	CASecretRef *SecretKeyRef `json:"caSecretRef,omitempty"`

	// sse is encryption by the store. If the store does not confirm the encryption, the agent sends nothing.
	// +optional
	SSE *S3Encryption `json:"sse,omitempty"`

	// objectLock protects each object from deletion for a number of days. Object lock must be enabled on the bucket.
	// +optional
	ObjectLock *S3ObjectLock `json:"objectLock,omitempty"`

	// checksum is when S3 checksums are sent: WhenSupported, or WhenRequired for stores that refuse unknown checksums.
	// Defaults to WhenSupported.
	// +kubebuilder:default=WhenSupported
	// +optional
	Checksum S3Checksum `json:"checksum,omitempty"`
}

// S3Checksum is when S3 checksums are sent and verified. The values are those of AWS.
//
// +kubebuilder:validation:Enum=WhenSupported;WhenRequired
type S3Checksum string

// When S3's own checksums are sent and verified.
const (
	ChecksumWhenSupported S3Checksum = "WhenSupported"
	ChecksumWhenRequired  S3Checksum = "WhenRequired"
)

// S3EncryptionMode is whose keys encrypt the objects.
//
// +kubebuilder:validation:Enum=AES256;KMS;CustomerKey
type S3EncryptionMode string

// The modes of encryption by the store.
const (
	// SSEAES256 uses keys of the store.
	SSEAES256 S3EncryptionMode = "AES256"
	// SSEKMS uses a key of a key management service.
	SSEKMS S3EncryptionMode = "KMS"
	// SSECustomerKey uses a key that the agent sends with each request, and that the store does not keep.
	SSECustomerKey S3EncryptionMode = "CustomerKey"
)

// S3Encryption is encryption by the store.
//
// +kubebuilder:validation:XValidation:rule="has(self.keySecretRef) == (self.mode == 'CustomerKey')",message="keySecretRef must be set with mode CustomerKey, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || self.mode == 'KMS'",message="kmsKeyID must be set only with mode KMS"
type S3Encryption struct {
	// mode is whose keys are used: AES256, KMS or CustomerKey.
	// +required
	Mode S3EncryptionMode `json:"mode"`
	// kmsKeyID is the ID, ARN or alias of a key. If not set, the default key of the store is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	KMSKeyID string `json:"kmsKeyID,omitempty"`
	// keySecretRef names 32 bytes, or those bytes in base64. Backups that were made with another key cannot be read
	// with this key.
	// +optional
	KeySecretRef *SecretKeyRef `json:"keySecretRef,omitempty"`
}

// S3LockMode is who can remove a lock.
//
// +kubebuilder:validation:Enum=Governance;Compliance
type S3LockMode string

// The modes of S3's object lock.
const (
	// LockGovernance can be removed by users with the necessary permission.
	LockGovernance S3LockMode = "Governance"
	// LockCompliance cannot be removed by any user.
	LockCompliance S3LockMode = "Compliance"
)

// S3ObjectLock protects each object for a number of days after it was written.
type S3ObjectLock struct {
	// mode is who can remove a lock. Governance: users with the necessary permission. Compliance: no user.
	// +required
	Mode S3LockMode `json:"mode"`
	// days for which an object is locked.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=36500
	// +required
	Days int32 `json:"days"`
}

// DirectoryStore is a volume that the Pods of all members mount.
//
// +kubebuilder:validation:XValidation:rule="has(self.claimName) != has(self.hostPath)",message="exactly one of claimName and hostPath must be set"
type DirectoryStore struct {
	// claimName is the name of an existing PersistentVolumeClaim. It must be ReadWriteMany unless all members run on
	// one node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// hostPath is a directory that exists on every node and that user 65532 can write to. Use it only for tests: a
	// backup that was written on one node is readable on another node only if both mount the same file system. You can
	// set it only if you may create Pods in the namespace, and if the namespace has the label
	// etcd.druid.dev/allow-host-path: "true". It must not be a directory of the system, such as /etc or /run.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.matches('/[.][.](/|$)')",message="hostPath must be an absolute path without .."
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/([.]?/)*([.]?$|(run|etc|proc|sys|dev|root|boot)(/|$)|var(/([.]?/)*[.]?)?$|var/([.]?/)*(run|lib)(/|$))')",message="hostPath must not be a directory of the system: /, /boot, /dev, /etc, /proc, /root, /run, /sys, /var, /var/lib or /var/run"
	// +optional
	HostPath string `json:"hostPath,omitempty"`
}

// SecretRef names a Secret in the namespace of the cluster.
type SecretRef struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// SecretKeyRef names an entry of a Secret in the namespace of the cluster.
type SecretKeyRef struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// key is the name of the entry in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Key string `json:"key"`
}

// LabelAllowHostPath is "true" on a namespace in which druid may mount a directory of the node into Pods of members. A link in such a
// directory can lead to each file of the node, so the policies of the installation ask for it.
const LabelAllowHostPath = "etcd.druid.dev/allow-host-path"
