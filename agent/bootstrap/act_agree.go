package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/etcd-druid/druid/membership"
)

// peerTimeout of a question to one peer. etcd itself waits 10 s, but a peer that is silent here is silent there too.
const peerTimeout = time.Second

// maxPeerList bounds the answer of a peer, in bytes: a member takes a few hundred.
const maxPeerList = 1 << 20

// peerMember is what a peer's list says of a member, as etcd reports it to others that join.
type peerMember struct {
	ID uint64 `json:"id"`
}

// firstPeerAgrees asks as an etcd that joins does: it compares its own list with that of the first peer that answers, in
// the order of their URLs, and ends if they differ. A learner that is still sent the database answers with the list it was
// started with, for as long as that takes: who joins meanwhile waits for it.
func (b *Bootstrapper) firstPeerAgrees(ctx context.Context, view membership.View, self uint64) error {
	client := b.transport.HTTPClient()
	defer client.CloseIdleConnections()
	for _, url := range peersOf(view, self) {
		list, err := peerList(ctx, client, url)
		if err != nil {
			continue // it will not answer etcd either
		}
		if !lists(list, view) {
			return fmt.Errorf("join: %s lists %d members, a quorum %d: %w", url, len(list), len(view.Members), errNotYet)
		}
		return nil
	}
	return nil
}

// peersOf are the peer URLs of all but self, in the order in which etcd asks them.
func peersOf(view membership.View, self uint64) []string {
	var urls []string
	for _, m := range view.Members {
		if m.ID != self {
			urls = append(urls, m.PeerURLs...)
		}
	}
	slices.Sort(urls)
	return urls
}

func peerList(ctx context.Context, client *http.Client, url string) ([]peerMember, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/members", nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its members: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s for its members: %s", url, response.Status)
	}
	var list []peerMember
	err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxPeerList)).Decode(&list)
	return list, err
}

// lists says whether the peer knows exactly the members of view.
func lists(list []peerMember, view membership.View) bool {
	return len(list) == len(view.Members) && !slices.ContainsFunc(list, func(m peerMember) bool {
		_, known := view.Member(m.ID)
		return !known
	})
}
