package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
)

// Where the certificates in effect are in the container of etcd, and the port for clients.
const (
	containerEtcd  = "etcd"
	containerAgent = "agent"
	clientTLSDir   = "/run/druid/tls/client/"
	clientPort     = 2379
)

func (o *options) etcdctlCommand() *cobra.Command {
	var member string
	var stdin bool
	command := o.forCluster(&cobra.Command{
		Use:   "etcdctl CLUSTER [flags] -- ARGUMENTS",
		Short: "Run etcdctl in the container of a member",
		Long: "Run etcdctl in the container of the leader, or of another member that serves, with the endpoint and the certificates of that member.\n" +
			"The certificate is that of the agents, so that you act as root. The exit code is that of etcdctl. You need create of pods/exec.",
		Example: "  kubectl druid etcdctl demo -- member list -w table\n  kubectl druid etcdctl demo --member demo-bqdq7 -- endpoint status",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("want the name of one EtcdCluster, two dashes, and the arguments of etcdctl, such as: kubectl druid etcdctl demo -- member list")
			}
			return nil
		},
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		objects, err := k.objects(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		pod, err := k.choose(objects.Cluster, view.Of(objects, o.now()), member)
		if err != nil {
			return fmt.Errorf("EtcdCluster %s/%s: %w", k.namespace, args[0], err)
		}
		// The output of etcdctl is that of this process, and so is its input with --stdin.
		streams := remotecommand.StreamOptions{Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
		if stdin {
			streams.Stdin = cmd.InOrStdin()
		}
		err = k.exec(cmd.Context(), execution{pod, containerEtcd, append(etcdctl(objects.Cluster), args[1:]...)}, streams)
		return exitCode(err, k.namespace+"/"+pod)
	})
	command.Flags().StringVar(&member, "member", "", "`name` of the member. If not set, it is the leader, or another member that serves")
	command.Flags().BoolVarP(&stdin, "stdin", "i", false, "pass the input of this command to etcdctl, for example a value for put")
	return command
}

// choose returns the Pod in which etcdctl runs.
func (s selection) choose(c v1alpha1.EtcdCluster, v view.Cluster, member string) (string, error) {
	if v.State == view.StatePaused {
		return "", fmt.Errorf("it is paused, so no etcd runs. Resume it first: %s", s.resume(c))
	}
	serving := ""
	for _, m := range v.Members {
		switch {
		case m.Name == member:
			return member, nil
		case m.State == string(v1alpha1.MemberReady) && (serving == "" || m.Name == v.Leader):
			serving = m.Name
		default: // it does not serve, or another one is chosen
		}
	}
	switch {
	case member != "":
		return "", fmt.Errorf("it has no member %s", member)
	case serving == "":
		return "", fmt.Errorf("no member is ready. See what they wait for: %s. Or choose one whose etcd runs with --member", s.invoke(c, "status"))
	default:
		return serving, nil
	}
}

// usesTLS says whether members serve clients by TLS alone, or by TLS too.
func usesTLS(c v1alpha1.EtcdCluster) bool {
	tls := c.Status.TLS
	return tls != nil && tls.Client != nil && (tls.Client.Stage == v1alpha1.TLSStageOn || tls.Client.Stage == v1alpha1.TLSStageBoth)
}

// etcdctl is the command up to the arguments of the user. The certificates of druid and of cert-manager cover localhost. Those of a user
// need not, but they cover the name of the Service.
func etcdctl(c v1alpha1.EtcdCluster) []string {
	if !usesTLS(c) {
		return []string{"etcdctl", fmt.Sprintf("--endpoints=http://localhost:%d", clientPort)}
	}
	endpoint := fmt.Sprintf("https://localhost:%d", clientPort)
	if c.Spec.TLS != nil && c.Spec.TLS.Client != nil && c.Spec.TLS.Client.SecretRef != nil && len(c.Status.Endpoints) > 0 {
		endpoint = c.Status.Endpoints[0]
	}
	return []string{
		"etcdctl", "--endpoints=" + endpoint, "--cacert=" + clientTLSDir + "trust.crt",
		"--cert=" + clientTLSDir + "current/client.crt", "--key=" + clientTLSDir + "current/client.key",
	}
}

// execution is a command in a container.
type execution struct {
	pod, container string
	command        []string
}

// exec runs a command in a container. The error of a command that ended with another exit code than 0 is a CodeExitError.
func (k *kube) exec(ctx context.Context, e execution, streams remotecommand.StreamOptions) error {
	request := k.typed.CoreV1().RESTClient().Post().Resource("pods").Namespace(k.namespace).Name(e.pod).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: e.container, Command: e.command, Stdin: streams.Stdin != nil, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	spdy, err := remotecommand.NewSPDYExecutor(k.config, "POST", request.URL())
	if err != nil {
		return err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(k.config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}

// exitCode ends this process as the command ended. etcdctl has said what is wrong.
func exitCode(err error, pod string) error {
	if ended, ok := errors.AsType[clientexec.CodeExitError](err); ok {
		return cli.Exit(ended.Code)
	}
	if err != nil {
		return fmt.Errorf("run etcdctl in Pod %s: %w", pod, err)
	}
	return nil
}
