package v1alpha1

// LeaveFirstAnnotation on an EtcdCluster has names of members, separated by commas. They leave before all others, in this order,
// when druid removes members. Names of other members have no effect.
const LeaveFirstAnnotation = "etcd.druid.dev/leave-first"

// ReplaceAnnotation on an EtcdCluster has the name of one member. A new member joins, and when it votes, druid removes the named one.
// The name of anything else has no effect. No name is used twice, so the annotation can stay.
const ReplaceAnnotation = "etcd.druid.dev/replace"

// ApplyNowAnnotation on an EtcdCluster has the metadata.generation of a spec change. druid accepts that change at once, also while
// another one is in progress. The generation of any other change has no effect.
const ApplyNowAnnotation = "etcd.druid.dev/apply-now"

// HandsOffAnnotation on an EtcdCluster has the reason, in your words, why druid must not act for this cluster. While it is there and
// not empty, druid observes the cluster, and creates, changes and deletes nothing of it. The agents continue.
const HandsOffAnnotation = "etcd.druid.dev/hands-off"
