package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// samplePace is how often every member is asked, and how often the answers are judged. A busy machine reaches a lower rate, and ten
	// per second are enough.
	samplePace = 50 * time.Millisecond
	// minSamples is the least number of samples per second.
	minSamples = 10
	// rateAfter is how long a member is watched before its rate counts.
	rateAfter = 5 * time.Second
	// sampleTimeout is for a machine that is busy: a member that is down refuses the connection at once, one that is cut
	// off counts as healthy for this long.
	sampleTimeout = 3 * time.Second
	// confirmTimeout is how long a quorum may take to confirm a list, elections included.
	confirmTimeout = silence
)

// Sampler asks each member up to 20 times per second for its raft group, its member list and its health. All must be of one raft
// group, with a quorum of healthy voters and not too many learners.
type Sampler struct {
	cluster *Cluster
	quorum  *clientv3.Client
	limit   int
	raft    uint64 // the raft group at the start
	began   time.Time
	ended   time.Time

	group *errgroup.Group
	stop  context.CancelFunc

	mu       sync.Mutex
	watched  map[string]*watched
	last     look // the newest of all
	samples  int
	rate     float64 // the lowest rate of looks at a member, per second; 0 before one counts
	spare    int     // least number of healthy voters above a quorum
	learners int     // most learners at once
	broken   []error
	unsafe   []error // confirmed: fewer voters than a quorum, or a member of another raft group
	reported sync.Once
}

// Sample starts a sampler of a formed cluster. It ends with Stop, or with the test.
func (c *Cluster) Sample(t testing.TB) *Sampler {
	t.Helper()
	record, err := c.Record(t.Context())
	if err != nil {
		t.Fatalf("record of %s: %v", c, err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &Sampler{
		cluster: c, quorum: c.EtcdService(t), limit: record.MaxLearners, raft: record.ClusterID, began: time.Now(),
		group: &errgroup.Group{}, stop: stop, watched: map[string]*watched{}, spare: len(record.Members),
	}
	s.watch(ctx, record.Members)
	s.group.Go(func() error { s.run(ctx); return nil })
	t.Cleanup(func() { s.Stop(t) }) // also where the story fails before: what was seen must not pass for a matter of chance
	return s
}

// Stop ends the sampler and fails the test for each sample that broke the rules.
func (s *Sampler) Stop(t testing.TB) {
	t.Helper()
	s.end()
	s.reported.Do(func() { s.report(t) })
}

func (s *Sampler) report(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.unsafe[:min(len(s.unsafe), 5)] {
		Unsafe(t, "sample: %v", err)
	}
	for _, err := range s.broken[:min(len(s.broken), 5)] {
		t.Errorf("sample: %v", err)
	}
	if rate := float64(s.samples) / s.ended.Sub(s.began).Seconds(); rate < minSamples {
		t.Errorf("there were %.1f samples per second, and %d are wanted", rate, minSamples)
	}
	for name := range s.watched {
		s.countRate(name)
	}
	t.Logf("%d samples of raft group %x, %d bad, %.1f each second, and each member was asked %.1f times each second or more; at the least %d "+
		"healthy voters more than a quorum, at the most %d learners at once", s.samples, s.raft, len(s.broken)+len(s.unsafe),
		float64(s.samples)/s.ended.Sub(s.began).Seconds(), s.rate, s.spare, s.learners)
}

func (s *Sampler) end() {
	s.stop()
	_ = s.group.Wait() // nothing in it returns an error
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() {
		s.ended = time.Now()
	}
}

func (s *Sampler) run(ctx context.Context) {
	ticker := time.NewTicker(samplePace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if newest, ok := s.newest(); ok {
			s.watch(ctx, names(newest.members))
			s.sample(ctx, newest)
		}
	}
}

// watch asks these members from now on, and no others.
func (s *Sampler) watch(ctx context.Context, members []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range members {
		if s.watched[name] != nil {
			continue
		}
		watching, stop := context.WithCancel(ctx)
		s.watched[name] = &watched{stop: stop, since: time.Now()}
		etcd, err := s.cluster.dialEtcd(Endpoint(name))
		if err != nil {
			s.broken = append(s.broken, fmt.Errorf("watch %s: %w", name, err))
			continue
		}
		s.group.Go(func() error {
			s.follow(watching, name, etcd)
			_ = etcd.Close()
			return nil
		})
	}
	for name, m := range s.watched {
		if !slices.Contains(members, name) {
			m.stop()
			s.countRate(name)
			delete(s.watched, name)
		}
	}
}

// countRate remembers how often a member was asked, if it was watched for long enough.
func (s *Sampler) countRate(name string) {
	m, now := s.watched[name], time.Now()
	if !s.ended.IsZero() {
		now = s.ended
	}
	if rate := m.perSecond(now); now.Sub(m.since) >= rateAfter && (s.rate == 0 || rate < s.rate) {
		s.rate = rate
	}
}

// follow asks one member again and again. What is known of it is its last answer, or that it gave none.
func (s *Sampler) follow(ctx context.Context, name string, etcd *clientv3.Client) {
	ticker := time.NewTicker(samplePace)
	defer ticker.Stop()
	for {
		l := lookAt(ctx, etcd)
		if ctx.Err() != nil {
			return
		}
		s.note(name, l)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// note saves a look at a member that is still watched.
func (s *Sampler) note(name string, l look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.watched[name]; m != nil {
		if err := m.looked(l, name, s.raft); err != nil {
			s.unsafe = append(s.unsafe, err)
		}
	}
}

// newest is the look at the member whose log reaches furthest: its list is the youngest. It is false until every member
// that is watched was looked at.
func (s *Sampler) newest() (newest look, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.watched {
		l := m.last
		if m.looks == 0 {
			return look{}, false
		}
		if l.err == nil && (!ok || l.applied > newest.applied) {
			newest, ok = l, true
		}
	}
	if ok {
		s.last = newest
	}
	// Without any answer the last list still reports how many should give one.
	return s.last, s.last.members != nil
}

// indispensable are the voters that are well, while no more of them are than a quorum; and none while one more is. Of a voter
// that gave no answer in time it is not known, and it counts as well: a busy machine lets a healthy member wait.
func (s *Sampler) indispensable() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	voters := 0
	var well []string
	for _, m := range s.last.members {
		if m.learner {
			continue
		}
		voters++
		if w := s.watched[m.name]; w != nil && w.looks > 0 && (w.last.err == nil || !w.last.refused()) {
			well = append(well, m.name)
		}
	}
	found := map[string]bool{}
	if len(well) > voters/2+1 {
		return found
	}
	for _, name := range well {
		found[name] = true
	}
	return found
}

// sample judges what is known of all members by a list. Both may be old already when they are judged: the list, and a look
// from before its member was promoted, as learners do not answer. So a bad judgement counts only if a quorum still has the
// same voters afterwards, and the next look at those that seemed down finds them so.
func (s *Sampler) sample(ctx context.Context, newest look) {
	s.mu.Lock()
	healthy := map[uint64]bool{}
	for _, m := range s.watched {
		healthy[m.last.id] = healthy[m.last.id] || m.looks > 0 && m.last.err == nil
	}
	s.mu.Unlock()
	v := judge(newest.members, healthy, s.limit)
	unsafe := false
	if v.err != nil {
		judged := time.Now()
		list, err := s.confirm(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			v.err = errors.Join(v.err, err)
		case !sameVoters(list, newest.members):
			return // it was an old list
		case v.spare < 0 && s.well(ctx, v.down, judged):
			return // it was an old look
		}
		unsafe = err == nil && v.spare < 0
		v.err = fmt.Errorf("at %s: %w", time.Now().Format("15:04:05.000"), v.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples++
	s.spare, s.learners = min(s.spare, v.spare), max(s.learners, v.learners)
	switch {
	case unsafe:
		s.unsafe = append(s.unsafe, v.err)
	case v.err != nil:
		s.broken = append(s.broken, v.err)
	}
}

// well says whether the next look that reports anything of each of these members finds it well. One of which nothing is
// reported for confirmTimeout is not.
func (s *Sampler) well(ctx context.Context, members []string, judged time.Time) bool {
	for deadline := time.Now().Add(confirmTimeout); time.Now().Before(deadline); {
		sick, unknown := s.anySick(members, judged)
		if sick || !unknown {
			return !sick
		}
		if !pause(ctx, samplePace) {
			return true // not asked for any more
		}
	}
	return false
}

// anySick says whether any of these members was sick after a moment, and whether that is unknown of any.
func (s *Sampler) anySick(members []string, since time.Time) (sick, unknown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range members {
		var l look
		if m := s.watched[name]; m != nil {
			l = m.last
		}
		well, known := l.stateSince(since)
		sick, unknown = sick || known && !well, unknown || !known
	}
	return sick, unknown
}

// confirm asks a quorum for the list.
func (s *Sampler) confirm(ctx context.Context) (list []listed, err error) {
	_, err = poll(ctx, confirmTimeout, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
		defer cancel()
		answer, err := s.quorum.MemberList(ctx)
		if err != nil {
			return fmt.Errorf("no quorum confirms the list: %w", err)
		}
		list = listOf(answer.Members)
		return nil
	})
	return list, err
}
