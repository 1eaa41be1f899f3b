package restore

import (
	"errors"
	"testing"

	"github.com/etcd-druid/druid/backup/snapshot"
)

func TestTheFormatOfADatabaseMustSuitTheEtcdThatIsToRun(t *testing.T) {
	for name, test := range map[string]struct {
		file   snapshot.File
		target string
		want   error
	}{
		"nothing is reported":                         {snapshot.File{}, "3.6", nil},
		"the same minor":                              {snapshot.File{StorageVersion: "3.6.0", ClusterVersion: "3.6.0"}, "3.6", nil},
		"the minor before":                            {snapshot.File{StorageVersion: "3.6.0", ClusterVersion: "3.6.0"}, "3.7", nil},
		"a newer storage":                             {snapshot.File{StorageVersion: "3.7.0"}, "3.6", ErrVersion},
		"a newer cluster":                             {snapshot.File{ClusterVersion: "3.7.0"}, "3.6", ErrVersion},
		"older than what is restored":                 {snapshot.File{ClusterVersion: "3.4.0"}, "3.6", ErrVersion},
		"a cluster that had not reported its version": {snapshot.File{ClusterVersion: "3.0.0"}, "3.6", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkFormat(test.file, &Config{EtcdVersion: test.target}); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}
