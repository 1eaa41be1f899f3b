package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

func TestAPatientContextEndsOnceNothingComes(t *testing.T) {
	const maxWait, pace = time.Minute, 50 * time.Second
	for name, test := range map[string]struct {
		progress int
		want     time.Duration
	}{
		"nothing ever comes": {0, maxWait},
		"what comes slowly":  {100, 100*pace + maxWait},
		"what comes once":    {1, pace + maxWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := store.Patient(t.Context(), maxWait)
				defer cancel()
				inner := store.OnProgress(ctx, func() {})
				for range test.progress {
					time.Sleep(pace)
					store.Progressed(inner)
				}
				<-ctx.Done()
				if after := time.Since(began); after != test.want {
					t.Errorf("it ended after %s, want %s", after, test.want)
				}
				reported := store.Because(ctx, context.Canceled)
				if !errors.Is(reported, context.Canceled) || !strings.Contains(reported.Error(), "the store sent no data for 1m0s") {
					t.Errorf("reported %v", reported)
				}
				if twice := store.Because(ctx, reported); twice.Error() != reported.Error() {
					t.Errorf("reported twice: %v", twice)
				}
				if err := store.Because(ctx, nil); err != nil {
					t.Errorf("of no error was made %v", err)
				}
			})
		})
	}
}

func TestWhatEndsOtherwiseIsNotCalledStalled(t *testing.T) {
	ctx, cancel := store.Patient(t.Context(), time.Hour)
	failed := errors.New("refused")
	if err := store.Because(ctx, failed); err.Error() != "refused" {
		t.Errorf("while it waits: %v", err)
	}
	cancel()
	if err := store.Because(ctx, failed); err.Error() != "refused" || ctx.Err() == nil {
		t.Errorf("after it was left: %v, %v", err, ctx.Err())
	}
	store.Progressed(t.Context()) // without a receiver
}
