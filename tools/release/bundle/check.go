package bundle

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	manifesterrors "github.com/operator-framework/api/pkg/validation/errors"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// validators are those that OperatorHub requires, and those of good practice. They read the bundle only.
func validators() interfaces.Validators {
	return slices.Concat(validation.DefaultBundleValidators, interfaces.Validators{
		validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
		validation.ObjectValidator, validation.AlphaDeprecatedAPIsValidator, validation.GoodPracticesValidator,
	})
}

// Check validates the bundle in a folder. Warnings are errors too.
func Check(dir string) error {
	loaded, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	if loaded.DefaultChannel == "" {
		return errors.New("metadata/annotations.yaml of the bundle is missing, or names no default channel")
	}
	var all error
	for _, v := range validators() {
		for _, result := range v.Validate(loaded.ObjectsToValidate()...) {
			for _, found := range slices.Concat(result.Errors, result.Warnings) {
				if !aboutRule(found) {
					all = errors.Join(all, found)
				}
			}
		}
	}
	return all
}

// aboutRule returns whether a warning says that a permission is about an API that Kubernetes removed. A permission names no version of
// an API, so the library warns of each one for Events, EndpointSlices and PodDisruptionBudgets. If an object of the bundle has a removed
// version, the library returns an error, because the ClusterServiceVersion has a minKubeVersion.
func aboutRule(found manifesterrors.Error) bool {
	return found.Level == manifesterrors.LevelWarn && strings.Contains(found.Detail, "deprecated and removed in v1.25") &&
		strings.Contains(found.Detail, "ClusterServiceVersion.Spec.InstallStrategy.StrategySpec.")
}
