package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/env"
)

const backupPrefix = "default/demo"

// saving is a configuration with backups to a directory.
func saving(t *testing.T, path string, period time.Duration) config.Reloadable {
	t.Helper()
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: path}})
	if err != nil {
		t.Fatal(err)
	}
	r := quick()
	r.Backup = &config.Backup{
		Store: raw, Prefix: backupPrefix, Full: config.Full{Schedule: "0 0 1 1 *"},
		Delta: config.Delta{Period: config.Duration(period), MaxBytes: 1 << 20}, Retention: config.Retention{Count: 1},
	}
	return r
}

// saved is the content of the store for the only lineage of the cluster.
func (p *pod) saved(path string) catalog.History {
	p.t.Helper()
	s, err := dir.Open(store.Directory{Path: path})
	p.must(err)
	c, err := catalog.Read(p.t.Context(), s, backupPrefix)
	p.must(err)
	if len(c.Histories) != 1 {
		return catalog.History{}
	}
	return c.Histories[0]
}

func (p *pod) savedUpTo(path string, revision int64) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("revision %d is saved", revision), func() error {
		if at := p.saved(path).LastSaved(); at < revision {
			return fmt.Errorf("saved up to %d", at)
		}
		return nil
	})
}

func (p *pod) put(c *clientv3.Client) int64 {
	p.t.Helper()
	response, err := c.Put(p.t.Context(), "k", "v")
	p.must(err)
	return response.Header.Revision
}

// token is of a user who may create EtcdSnapshots.
func (p *pod) token() string {
	p.t.Helper()
	return env.Token(p.t, env.APIServer(p.t), p.namespace, "caller",
		rbacv1.PolicyRule{APIGroups: []string{"etcd.druid.dev"}, Resources: []string{"etcdsnapshots"}, Verbs: []string{"create"}})
}

func (p *pod) post(body string) (code int, artifact struct {
	Object, SHA256 string
	Revision       int64
}) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), maxWait)
	defer cancel()
	url := transport.URL(false, "127.0.0.1", p.config.AgentPort) + "/v1/snapshots"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	p.must(err)
	request.Header.Set("Authorization", "Bearer "+p.token())
	client := transport.Transport{}.HTTPClient()
	client.Timeout = maxWait
	response, err := client.Do(request)
	p.must(err)
	defer func() { _ = response.Body.Close() }()
	p.must(json.NewDecoder(response.Body).Decode(&artifact))
	return response.StatusCode, artifact
}

func TestALeaderBacksUpAlsoWhileTheAPIIsAway(t *testing.T) {
	path := t.TempDir()
	p := newPod(t, saving(t, path, time.Second))
	p.startAgent()
	m := p.formed()
	client := p.etcd()
	p.savedUpTo(path, p.put(client))
	h := p.saved(path)
	if string(h.Lineage) != m.Lineage || h.Formation == nil || h.Formation.ClusterUID != "cluster-uid" {
		t.Errorf("saved under lineage %s, formed as %+v; the member's is %s", h.Lineage, h.Formation, m.Lineage)
	}
	last := p.put(client)
	for _, kind := range []string{"Full", "Full", "Delta"} {
		p.eventually(kind+" on demand", func() error { // 409 while a look at etcd takes too long to be sure who leads
			code, a := p.post(`{"type":"` + kind + `"}`)
			if code == http.StatusConflict {
				return fmt.Errorf("answered %+v", a)
			}
			if code != http.StatusOK || a.Revision < last {
				t.Errorf("%s on demand: %d %+v, want revision %d", kind, code, a, last)
			}
			return nil
		})
	}
	if code, _ := p.post(`{"type":"Half"}`); code != http.StatusBadRequest {
		t.Errorf("half a backup on demand: %d, want 400", code)
	}
	p.eventually("retention leaves the full that counts and the one before it", func() error {
		if n := len(p.saved(path).Fulls); n != 2 {
			return fmt.Errorf("%d fulls", n)
		}
		return nil
	})
	if _, metrics := p.get("/metrics"); !strings.Contains(metrics, `etcd_agent_backup_objects_total{kind="Full"}`) {
		t.Error("metrics do not count fulls")
	}

	p.cut.cut()
	p.savedUpTo(path, p.put(client))
	p.cut.broken.Store(false)
}

// TestAcknowledgedWritesSavedBeforeStop: what etcd acknowledged is saved before it ends.
func TestAcknowledgedWritesSavedBeforeStop(t *testing.T) {
	path := t.TempDir()
	p := newPod(t, saving(t, path, time.Hour)) // nothing but the end saves a delta
	a, _ := p.startAgent()
	p.formed()
	p.savedUpTo(path, 1)
	last := p.put(p.etcd())
	if at := p.saved(path).LastSaved(); at >= last {
		t.Fatalf("revision %d is saved already: %d", last, at)
	}
	p.must(p.endLaunch())
	p.eventually("etcd ends", func() error {
		if s := a.Status(); s.Launch.Connected { // launch ends after etcd
			return fmt.Errorf("its launch: %+v", s.Launch)
		}
		return nil
	})
	if at := p.saved(path).LastSaved(); at < last {
		t.Errorf("saved up to %d when etcd had ended, want %d", at, last)
	}
}

// endLaunch ends launch as the kubelet does.
func (p *pod) endLaunch() error { return syscall.Kill(p.launch, syscall.SIGTERM) }

// TestMissingStoreBlocksNothingElse: a store that is not there hinders nothing else.
func TestMissingStoreBlocksNothingElse(t *testing.T) {
	path := t.TempDir()
	p := newPod(t, quick())
	a, _ := p.startAgent()
	p.formed() // which waits for the store where there is one
	p.must(os.RemoveAll(path))
	p.configure(saving(t, path, time.Second))
	last := p.put(p.etcd())
	p.eventually("the failure is counted", func() error {
		if _, metrics := p.get("/metrics"); !strings.Contains(metrics, `etcd_agent_backup_failures_total{kind="Store"}`) {
			return errors.New("it is not")
		}
		return nil
	})
	p.eventually("etcd is healthy", func() error {
		if !a.Status().Etcd.Healthy {
			return errors.New("it is not")
		}
		return nil
	})
	p.must(os.Mkdir(path, 0o700))
	p.savedUpTo(path, last)
}
