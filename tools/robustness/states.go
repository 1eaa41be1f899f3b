package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.uber.org/zap"
)

// states prints what the keys were at each of the revisions, by the logs of the members in the directory: an object of JSON that has an
// object for each revision, which has the value and the revision of each key. Of a long value it has the hash (model.ToValueOrHash).
func states(dir, revisions string) error {
	persisted, err := requestsOf(zap.NewNop(), dir)
	if err != nil {
		return fmt.Errorf("read the logs of the members in %s: %w", dir, err)
	}
	replay, all := model.NewReplay(persisted), map[int64]map[string]model.ValueRevision{}
	for text := range strings.SplitSeq(revisions, ",") {
		revision, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("-revisions: %w", err)
		}
		state, err := replay.StateForRevision(revision)
		if err != nil {
			return fmt.Errorf("the logs of the members in %s: %w", dir, err)
		}
		keys := map[string]model.ValueRevision{}
		for i, key := range state.Keys {
			if value := state.KeyValues[i]; value != nil {
				keys[key] = *value
			}
		}
		all[revision] = keys
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}
