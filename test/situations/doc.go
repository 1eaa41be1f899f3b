// Package situations has the objects of EtcdClusters in typical states, as druid and the agents write them: the messages, the
// annotations and the times fit each other. Tests of what people see use them. Only tests import it.
package situations
