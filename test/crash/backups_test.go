package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
)

const backupPrefix = "default/demo"

// backUp has the agent that is started next back up into a directory, where two names of old fulls make another one due,
// and one too many.
func (p *pod) backUp(path string) {
	p.c.snapshotLeases()
	p.backups = path
	record, _, err := p.c.store.Record(p.c.t.Context())
	p.c.must(err)
	s, err := dir.Open(store.Directory{Path: path})
	p.c.must(err)
	for _, at := range []time.Time{time.Now().Add(-2 * time.Hour), time.Now().Add(-time.Hour)} {
		_, err := s.Put(p.c.t.Context(), catalog.FullKey(backupPrefix, catalog.Lineage(record.Lineage), 1, at), strings.NewReader("old"), store.PutOptions{})
		p.c.must(err)
	}
	p.configureBackups()
}

func (p *pod) configureBackups() {
	content, err := p.withBackups().YAML()
	p.c.must(err)
	p.c.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
}

// withBackups is a configuration of the agent that backs up into its directory.
func (p *pod) withBackups() config.Reloadable {
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: p.backups}})
	p.c.must(err)
	r := quick()
	r.Backup = &config.Backup{
		Store: raw, Prefix: backupPrefix, Full: config.Full{Schedule: "0 0 1 1 *", MaxAge: config.Duration(time.Minute)},
		Delta: config.Delta{Period: config.Duration(time.Second), MaxBytes: 1 << 20}, Retention: config.Retention{Count: 1},
	}
	return r
}

// TestOnDemandBackupByLeadersAgent: a backup on demand is taken by the leader's agent.
// A full that is asked for in its own Pod is the leader's to take. The agents of the other members name it.
func TestOnDemandBackupByLeadersAgent(t *testing.T) {
	t.Parallel()
	c := formed(t, 3)
	path := t.TempDir()
	for _, p := range c.pods {
		p.backups = path
		p.configureBackups()
	}
	client := transport.Transport{}.HTTPClient()
	client.Timeout = maxWait
	for _, kind := range []string{"Full", "Delta"} {
		c.eventually(kind+" on demand", func() error {
			follower := c.follower()
			code, body, err := demand(client, follower, kind)
			var refusal struct{ Leader string }
			if err := errors.Join(err, json.Unmarshal(body, &refusal)); err != nil || code != http.StatusMisdirectedRequest {
				return fmt.Errorf("%s answered %d %s: %w", follower.name, code, body, err)
			}
			leader := c.pods[refusal.Leader]
			if leader == nil || leader == follower {
				return fmt.Errorf("%s names the leader %q", follower.name, refusal.Leader)
			}
			code, body, err = demand(client, leader, kind)
			if err != nil || code != http.StatusOK || !strings.Contains(string(body), `"type":"`+kind+`"`) {
				return fmt.Errorf("%s answered %d %s: %w", leader.name, code, body, err)
			}
			return nil
		})
	}
	c.follower().savesOn()
}

func demand(client *http.Client, of *pod, kind string) (code int, body []byte, err error) {
	port := of.config.AgentPort
	if of.c.tls != nil {
		port = of.config.APIPort // with TLS, this port alone takes requests that act
	}
	url := transport.URL(of.c.tls != nil, of.c.addresses[of.name], port) + "/v1/snapshots"
	request, err := http.NewRequestWithContext(of.c.t.Context(), http.MethodPost, url, strings.NewReader(`{"type":"`+kind+`"}`))
	of.c.must(err)
	request.Header.Set("Authorization", "Bearer "+env.Token(of.c.t, of.c.rest, of.c.namespace, "caller",
		rbacv1.PolicyRule{APIGroups: []string{"etcd.druid.dev"}, Resources: []string{"etcdsnapshots"}, Verbs: []string{"create"}}))
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// orderBackup does what druid does for an EtcdSnapshot.
func (c *cluster) orderBackup() {
	c.t.Helper()
	c.annotate(leases.FullSnapshotName(clusterName), leases.AnnotationSnapshotOrder, fmt.Sprint("order-", time.Now().UnixNano()))
}

// snapshotLeases does what druid does for a cluster that is backed up: it makes the Leases, with the agents' right to them.
func (c *cluster) snapshotLeases() {
	c.t.Helper()
	owner := c.owner()
	owner.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{S3: &v1alpha1.S3Store{Bucket: "backups"}}}
	c.grant(owner)
	api := c.admin.CoordinationV1().Leases(c.namespace)
	for _, component := range []leases.Component{leases.ComponentFullSnapshot, leases.ComponentDeltaSnapshot} {
		lease, err := manifests.SnapshotLease(owner, component)
		c.must(err)
		if _, err := api.Create(c.t.Context(), lease, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			c.t.Fatal(err)
		}
	}
}

// ordersAnswered waits until the order is answered, by what is in the store.
func (p *pod) ordersAnswered() {
	p.c.t.Helper()
	s, err := dir.Open(store.Directory{Path: p.backups})
	p.c.must(err)
	p.c.eventually("the order is answered", func() error {
		order, err := p.c.store.SnapshotOrder(p.c.t.Context(), leases.ComponentFullSnapshot)
		if err != nil || order.UID == "" || order.Open() || order.Answer.Phase != leases.SnapshotSucceeded {
			return fmt.Errorf("the Lease says %+v, %w", order, err)
		}
		for o, err := range s.List(p.c.t.Context(), order.Answer.Object) {
			if err != nil || o.Key == order.Answer.Object && o.Size == order.Answer.Size {
				return err
			}
		}
		return fmt.Errorf("the store does not hold %+v", order.Answer)
	})
}

// savesOn waits until what is written now is in the one lineage of the store.
func (p *pod) savesOn() {
	var revision int64
	p.c.eventually("put", func() error {
		return p.c.etcd(p.name, func(ctx context.Context, client *clientv3.Client) error {
			response, err := client.Put(ctx, "k", "v")
			if err == nil {
				revision = response.Header.Revision
			}
			return err
		})
	})
	s, err := dir.Open(store.Directory{Path: p.backups})
	p.c.must(err)
	p.c.eventually("the lineage continues", func() error {
		c, err := catalog.Read(p.c.t.Context(), s, backupPrefix)
		if err != nil {
			return err
		}
		if len(c.Histories) != 1 || c.Histories[0].LastSaved() < revision || c.Histories[0].Formation == nil {
			return fmt.Errorf("revision %d is not saved: %+v", revision, c)
		}
		return nil
	})
}
