package harness

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// smallDiskRoom is how many MiB a small disk has besides the content: enough for two files of etcd's log, which have 64 MiB each.
const smallDiskRoom = 256

// SmallDisk is a file system of limited size in the place of a member's volume, on the node of the member.
type SmallDisk struct {
	cluster *Cluster
	node    string
	volume  string // directory of the volume
	disk    string // where the file system is mounted too
}

// OnSmallDisk moves the content of a member's volume to a small disk. The member is held down.
func (h *Hold) OnSmallDisk(t testing.TB, node string) *SmallDisk {
	t.Helper()
	d := &SmallDisk{cluster: h.cluster, node: node, volume: h.cluster.VolumeOf(t, h.member).Dir, disk: "/run/small-" + h.podUID}
	// A mount in the place of the volume appears in the kubelet's mount of it too, and disappears with that one.
	Eventually(t, maxWait, "the kubelet unmounts "+d.volume, func(ctx context.Context) error {
		out, err := d.run(ctx, `! grep --fixed-strings "local-volume/${1##*/} " /proc/self/mountinfo`)
		if err != nil {
			return fmt.Errorf("it is mounted: %s", out)
		}
		return nil
	})
	d.must(t, `mkdir "$2"
mount -t tmpfs -o size=$(($(du --summarize --block-size=M "$1" | cut --delimiter=M --fields=1) + $3))M tmpfs "$2"
cp --archive "$1/." "$2"
mount --bind "$2" "$1"`)
	return d
}

// Fill uses all that is left of the small disk. It fails if the small disk is not in the place of the volume: the disk below is that of this
// machine.
func (d *SmallDisk) Fill(t testing.TB) {
	t.Helper()
	d.must(t, `if [ "$(stat --file-system --format=%T "$1")" != tmpfs ]; then
	echo "$1 is not on the small disk $2:"
	cat /proc/self/mountinfo
	exit 1
fi
! dd if=/dev/zero of="$1/ballast" bs=4096 2>"$2.dd"
grep --quiet "No space left on device" "$2.dd"`)
}

// Full returns an error unless a write to the small disk finds no space.
func (d *SmallDisk) Full(ctx context.Context) error {
	_, err := d.run(ctx, `! dd if=/dev/zero of="$1/ballast" bs=4096 count=1 oflag=append conv=notrunc 2>"$2.dd"
grep --quiet "No space left on device" "$2.dd"`)
	return err
}

// Quarantined returns the directories of data in quarantine. On this machine, the directory of the volume does not have what is on the disk.
func (d *SmallDisk) Quarantined(ctx context.Context) ([]string, error) {
	out, err := d.run(ctx, `find "$1" -maxdepth 1 -name "data.quarantine-*"; test -d "$1/data"`)
	return strings.Fields(out), err
}

// Free takes away what Fill wrote.
func (d *SmallDisk) Free(t testing.TB) {
	t.Helper()
	d.must(t, `rm "$1/ballast"`)
}

// Grow gives the small disk as much again as it had besides the content.
func (d *SmallDisk) Grow(t testing.TB) {
	t.Helper()
	d.must(t, `mount -o remount,size=$(($(df --output=size --block-size=M "$2" | tail --lines=1 | tr --delete ' M') + $3))M "$2"`)
}

// Back moves the content of the small disk to the member's volume, and removes the disk. The member is held down.
func (d *SmallDisk) Back(t testing.TB) {
	t.Helper()
	d.must(t, `umount "$1"
find "$1" -mindepth 1 -delete
cp --archive "$2/." "$1"
umount "$2"
rmdir "$2"`)
}

func (d *SmallDisk) must(t testing.TB, script string) {
	t.Helper()
	if out, err := d.run(t.Context(), script); err != nil {
		t.Fatalf("small disk of volume %s: %v: %s", d.volume, err, strings.TrimSpace(out))
	}
}

// run runs a script on the node. Its arguments are the volume, the disk, and smallDiskRoom.
func (d *SmallDisk) run(ctx context.Context, script string) (string, error) {
	return d.cluster.Rig.Lab.ExecNode(ctx, d.node, "bash", "-ec", script, "small-disk", d.volume, d.disk, strconv.Itoa(smallDiskRoom))
}
