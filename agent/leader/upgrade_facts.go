package leader

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// upgradeFacts are made of the order and of what each member says of itself.
func upgradeFacts(firm rules.Answer, order leases.UpgradeOrder, all []membership.Status) membership.UpgradeFacts {
	f := membership.UpgradeFacts{
		Firm: firm, Whole: rules.Yes, Course: membership.CourseOn, Announced: membership.AnnouncedNone,
		Reached: rules.No, Storage: rules.Yes, Log: membership.LogReadable,
	}
	if order.Downgrade != "" {
		f.Course = membership.CourseBack
	}
	announced := announcedBy(all)
	switch announced {
	case "":
	case order.Downgrade:
		f.Announced = membership.AnnouncedThis
	default:
		f.Announced = membership.AnnouncedOther
	}
	for _, s := range all {
		runs := lineOf(s.Version)
		if runs == "" {
			f.Reached, f.Storage = rules.Unknown, rules.Unknown
			return f
		}
		if runs == order.Downgrade || runs == announced {
			f.Reached = rules.Yes
		}
		if lags(s, order) {
			f.Storage = rules.No
		}
	}
	return f
}

// announcedBy is the minor of the downgrade that a member knows of, empty for none.
func announcedBy(all []membership.Status) string {
	for _, s := range all {
		if s.Downgrade != "" {
			return lineOf(s.Downgrade)
		}
	}
	return ""
}

// lags says whether the storage of a member still has the format of a later minor than is asked for. A member that runs the
// minor asked for reads no other.
func lags(s membership.Status, order leases.UpgradeOrder) bool {
	return order.Downgrade != "" && lineOf(s.Version) != order.Downgrade && lineOf(s.StorageVersion) != order.Downgrade
}

// lineOf is major.minor of a version, empty of what is none.
func lineOf(version string) string {
	if strings.Count(version, ".") == 1 {
		version += ".0"
	}
	v, ok := versions.Parse(version)
	if !ok {
		return ""
	}
	return v.Line()
}

func storageWords(order leases.UpgradeOrder, all []membership.Status) string {
	for _, s := range all {
		if lags(s, order) {
			return fmt.Sprintf(": member %s has that of %s", leases.FormatID(s.MemberID), s.StorageVersion)
		}
	}
	return ""
}
