package cgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const v1Mounts = `31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
34 31 0:31 /box /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
36 31 0:33 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
37 31 0:34 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		own, mounts string
		want        []Hierarchy
		wantErr     string
	}{
		"a hybrid host uses v1, below the cgroup it was given": {
			own:    "6:name=systemd:/\n5:pids:/a\n4:memory:/box/b\n3:cpuset:/\n2:cpu,cpuacct:/\n1:hugetlb:/\n0::/\n",
			mounts: v1Mounts,
			want: []Hierarchy{
				{"name=systemd", "/sys/fs/cgroup/systemd"},
				{"pids", "/sys/fs/cgroup/pids/a"},
				{"memory", "/sys/fs/cgroup/memory/b"},
				{"cpuset", "/sys/fs/cgroup/cpuset"},
				{"cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"},
			},
		},
		"a v2 host has one hierarchy": {
			own:    "0::/user.slice/s.scope\n",
			mounts: "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			want:   []Hierarchy{{"", "/sys/fs/cgroup/user.slice/s.scope"}},
		},
		"a missing controller is named": {
			own:     "5:pids:/\n3:cpuset:/\n2:cpu,cpuacct:/\n",
			mounts:  v1Mounts,
			wantErr: "controllers memory are not mounted",
		},
		"no cgroups at all": {
			mounts:  "31 23 0:28 / /proc rw - proc proc rw\n",
			wantErr: "no cgroup file system is mounted",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(strings.NewReader(tt.own), strings.NewReader(tt.mounts))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("got error %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(got, tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}
