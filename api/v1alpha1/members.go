package v1alpha1

// LeaveFirstAnnotation on an EtcdCluster has names of members, separated by commas. They leave before all others, in this order,
// when druid removes members. Names of other members have no effect.
const LeaveFirstAnnotation = "etcd.druid.dev/leave-first"
