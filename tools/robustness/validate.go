package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
)

// errUndecided says that the search for an order of the operations did not end: the record is neither valid nor invalid.
var errUndecided = errors.New("no order of the operations was found or excluded")

// check validates the record in the directory against the logs of the members there: the operations are linearizable, the watches delivered
// each change once and in order, and reads of old revisions agree with the log. It prints the results. If one of these is not
// true, it writes a page with the operations to history.html. The validator searches so long for an order of the operations that explains
// all answers. It returns errUndecided if this search does not end and all else is valid.
func check(dir string, search time.Duration) error {
	lg := zap.NewNop()
	detail, err := report.LoadTrafficDetail(dir)
	if err != nil {
		return fmt.Errorf("read the record in %s: %w", dir, err)
	}
	reports, err := report.LoadClientReports(dir)
	if err != nil {
		return fmt.Errorf("read the record in %s: %w", dir, err)
	}
	persisted, err := requestsOf(lg, dir)
	if err != nil {
		return fmt.Errorf("read the logs of the members in %s: %w", dir, err)
	}
	if len(persisted) == 0 {
		return fmt.Errorf("the logs of the members in %s contain no request: without them, watches cannot be validated", dir)
	}
	result := validate.ValidateAndReturnVisualize(lg, validate.Config{ExpectRevisionUnique: detail.ExpectUniqueRevision}, reports, persisted, search)
	if s := result.Linearization.Status; s == validate.Timeout || s == validate.DeadlineExceeded {
		if err := errors.Join(result.Assumptions.Error(), result.Watch.Error(), result.Serializable.Error()); err == nil {
			return fmt.Errorf("the record in %s: %w within %s. Validate it again on an idle machine, or with a longer -search", dir, errUndecided, search)
		}
	}
	if err := result.Error(); err != nil {
		drawn := porcupine.VisualizePath(result.Linearization.Model, result.Linearization.Info, filepath.Join(dir, "history.html"))
		return errors.Join(fmt.Errorf("the record in %s is not valid; history.html there shows it: %w", dir, err), drawn)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"persisted": len(persisted), "linearization": result.Linearization.Status, "watch": result.Watch.Status, "serializable": result.Serializable.Status,
	})
}
