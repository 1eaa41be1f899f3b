package druid

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/manifests"
)

// The steps of a stage run at once, and several may find that druid has to look again.
func TestTheSoonestLookWins(t *testing.T) {
	var (
		o     observation
		group sync.WaitGroup
	)
	for i := range parallel {
		group.Go(func() { o.lookAgain(time.Duration(i) * time.Second) })
	}
	group.Wait()
	if o.again != time.Second {
		t.Errorf("looks again after %v, want %v: 0 is never", o.again, time.Second)
	}
}

func TestOnlyAHostPinsAVolume(t *testing.T) {
	term := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	tests := map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  pin
	}{
		"no affinity":         {nil, pin{}},
		"a host":              {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a")}, pin{host: "a"}},
		"one of two hosts":    {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a", "b")}, pin{}},
		"a host or another":   {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a"), term(corev1.LabelHostname, "b")}, pin{}},
		"a zone":              {[]corev1.NodeSelectorTerm{term(corev1.LabelTopologyZone, "z")}, pin{}},
		"a zone, or a host":   {[]corev1.NodeSelectorTerm{term(corev1.LabelTopologyZone, "z"), term(corev1.LabelHostname, "a")}, pin{}},
		"a host, or a zone":   {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a"), term(corev1.LabelTopologyZone, "z")}, pin{}},
		"a label of a driver": {[]corev1.NodeSelectorTerm{term("topology.example.com/node", "a")}, pin{}},
		"a node's name": {[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"},
		}}}}, pin{"a", true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{}
			if test.terms != nil {
				volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
			}
			if got := pinOf(volume); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTaintCountsOnlyOnANodeThatIsNotReady(t *testing.T) {
	for _, test := range []struct {
		ready  corev1.ConditionStatus
		taints []corev1.Taint
		want   policy.NodeState
	}{
		{corev1.ConditionTrue, nil, policy.NodeReady},
		{corev1.ConditionTrue, []corev1.Taint{outOfService}, policy.NodeReady},
		{corev1.ConditionUnknown, nil, policy.NodeAway},
		{corev1.ConditionFalse, []corev1.Taint{{Key: "other"}}, policy.NodeAway},
		{corev1.ConditionUnknown, []corev1.Taint{outOfService}, policy.NodeOutOfService},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: test.taints}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: test.ready}},
		}}
		if got := nodeState(node); got != test.want {
			t.Errorf("%+v: got %d", test, got)
		}
	}
}

func TestPodState(t *testing.T) {
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}
	tests := map[string]struct {
		pod  corev1.Pod
		want policy.PodState
	}{
		"no node": {corev1.Pod{}, policy.PodUnscheduled},
		"a node, and the kubelet said nothing yet": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, policy.PodUnstarted},
		"a node, and everything waits": {corev1.Pod{
			Spec:   corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{waiting}},
		}, policy.PodUnstarted},
		"the agent runs, etcd does not yet": {corev1.Pod{
			Spec: corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{
				Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{running}, ContainerStatuses: []corev1.ContainerStatus{waiting},
			},
		}, policy.PodLive},
		"an unknown phase counts": {corev1.Pod{
			Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodUnknown},
		}, policy.PodLive},
		"evicted": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}, policy.PodEnded},
		"ended and deleted": {corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
		}, policy.PodTerminating},
		"deleted before it had a node": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}, policy.PodTerminating},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := podState(&test.pod); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestNodeLostIsTheMarkOfTheNodeController(t *testing.T) {
	conditions := func(containers, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: containers}, {Type: corev1.PodReady, Status: ready},
		}}}
	}
	gated := conditions(corev1.ConditionTrue, corev1.ConditionFalse)
	gated.Status.Conditions[1].Reason = "ReadinessGatesNotReady"
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"both ready, by the kubelet":               {conditions(corev1.ConditionTrue, corev1.ConditionTrue), false},
		"neither ready, by the kubelet":            {conditions(corev1.ConditionFalse, corev1.ConditionFalse), false},
		"only Ready taken back: by the controller": {conditions(corev1.ConditionTrue, corev1.ConditionFalse), true},
		"nothing said":                             {&corev1.Pod{}, false},
		"a readiness gate is not open":             {gated, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := nodeLost(test.pod); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestContainerProblem(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "demo-a"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: manifests.ContainerAgent, Image: "agent:1"}},
		Containers:     []corev1.Container{{Name: manifests.ContainerEtcd, Image: "etcd:1"}},
	}}
	wait := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "open  druid.lock:\npermission denied"}}
	tests := map[string]struct {
		status corev1.ContainerStatus
		reason string
		says   string
	}{
		"a container that comes up is no problem": {status: corev1.ContainerStatus{State: wait("ContainerCreating", "")}},
		"one that ran and runs again is none": {
			status: corev1.ContainerStatus{LastTerminationState: ended, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		"an install that succeeded is none": {status: corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}},
		"etcd's image": {
			corev1.ContainerStatus{Name: manifests.ContainerEtcd, State: wait("ErrImagePull", "attempt 7")}, v1alpha1.ReasonImagePullFailed,
			"image etcd:1 cannot be pulled. Check spec.image",
		},
		"the agent's image": {
			corev1.ContainerStatus{Name: manifests.ContainerAgent, State: wait("ImagePullBackOff", "back-off 10s")}, v1alpha1.ReasonImagePullFailed,
			"image agent:1 cannot be pulled. Check druid's --agent-image",
		},
		"a volume mounted noexec": {
			corev1.ContainerStatus{Name: manifests.ContainerEtcd, State: wait("RunContainerError", `exec: "/druid/agent": permission denied`)},
			v1alpha1.ReasonContainerCannotStart, "permission denied",
		},
		"one that ends again and again, in its own words": {
			corev1.ContainerStatus{Name: manifests.ContainerEtcd, State: wait("CrashLoopBackOff", "back-off 5m"), LastTerminationState: ended},
			v1alpha1.ReasonContainerCannotStart, "exit code 1: open druid.lock: permission denied",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			switch p := containerProblem(pod, test.status); {
			case p == nil && test.reason != "":
				t.Errorf("no problem found, want %s", test.reason)
			case p != nil && (p.Reason != test.reason || !strings.Contains(p.Message, test.says)):
				t.Errorf("got %+v, want %s with %q", p, test.reason, test.says)
			}
		})
	}
}

func TestLastWordsAreTheSameEachTime(t *testing.T) {
	tests := map[string]struct{ message, want string }{
		"launch's and the agent's log": {
			`{"time":"2026-11-21T04:00:00Z","level":"INFO","msg":"started"}` + "\n" +
				`{"time":"2026-11-21T04:00:01.5Z","level":"ERROR","msg":"launch ended","err":"open druid.lock: permission denied"}` + "\n",
			"launch ended: open druid.lock: permission denied",
		},
		"etcd's log":            {`{"level":"fatal","ts":"2026-11-21T04:00:00Z","msg":"discovery failed","error":"no peer"}`, "discovery failed: no peer"},
		"a message alone":       {`{"msg":"ended"}`, "ended"},
		"plain words":           {"first\nsecond \t line\n", "first second line"},
		"JSON without messages": {`{"a":1}`, `{"a":1}`},
		"nothing":               {"", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lastWords(test.message); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOptionsNameWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults lack only the image": {func(*Options) {}, "--agent-image is empty, and the variables POD_NAMESPACE and POD_NAME do not name the Pod"},
		"half of the name of the own Pod":  {func(o *Options) { o.Pod.Name = "druid" }, "--agent-image is empty"},
		"the own Pod has the image":        {func(o *Options) { o.Pod = types.NamespacedName{Namespace: "n", Name: "druid"} }, ""},
		"an address without a port":        {func(o *Options) { o.HealthAddress = "localhost" }, "--health-address"},
		"no workers":                       {func(o *Options) { o.Concurrency = 0 }, "--concurrency"},
		"a namespace that cannot be one":   {func(o *Options) { o.Namespaces = []string{"Not_One"} }, "--namespaces"},
		"an address that is switched off":  {func(o *Options) { o.AgentImage, o.MetricsAddress = "i", "0" }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			test.change(&o)
			err := o.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
