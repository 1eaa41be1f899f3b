package druid_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// licenses are the only ones under which a program of druid may link a module: none asks for the source of what links it. Each is known
// by a sentence of its own that every copy has.
var licenses = map[string]string{
	"Apache-2.0": "apache license version 2.0, january 2004",
	"MIT":        "permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files",
	"BSD": "redistribution and use in source and binary forms, with or without modification, are permitted provided that the following " +
		"conditions are met",
	"ISC":          "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted",
	"ISC, as Spew": "permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted",
}

// strict words stand in licenses that ask for more.
var strict = regexp.MustCompile(`gnu (lesser |affero )?general public license|mozilla public license|server side public license|business ` +
	`source license|commons clause`)

// oddities name their licenses in their own words; someone has read them.
var oddities = map[string]string{
	"go.yaml.in/yaml/v3": "mit and apache",
	"sigs.k8s.io/json":   "apache license version 2.0",
}

// license returns the name of the license in a text, or nothing.
func license(module, text string) string {
	text = strings.Join(strings.Fields(strings.ToLower(text)), " ")
	if strict.MatchString(text) {
		return ""
	}
	if odd, ok := oddities[module]; ok && strings.Contains(text, odd) {
		return odd
	}
	for _, name := range slices.Sorted(maps.Keys(licenses)) {
		if strings.Contains(text, licenses[name]) {
			return name
		}
	}
	return ""
}

func TestEveryLinkedModuleHasAnAllowedLicense(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", "./cmd/...")
	cmd.Env = append(cmd.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := slices.Compact(slices.Sorted(strings.Lines(string(out))))
	if len(modules) < 50 {
		t.Fatalf("go list names %d modules, want all", len(modules))
	}
	for _, line := range modules {
		module, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		files, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no file LICENSE (%v): read its terms before a program links it", module, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if license(module, string(raw)) == "" {
				t.Errorf("%s is under a license that is not in the list: read %s", module, file)
			}
		}
	}
}

func TestALicenseThatAsksForMoreIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"GPL": "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007",
		"AGPL and MIT": "MIT License\nPermission is hereby granted, free of charge, to any person obtaining a copy of this software and " +
			"associated documentation files\n\nGNU Affero General Public License",
		"MPL":                  "Mozilla Public License Version 2.0",
		"nothing that we know": "All rights reserved.",
	} {
		if found := license("example.com/m", text); found != "" {
			t.Errorf("%s is taken for %s", name, found)
		}
	}
}

// What the module cache has is what go.sum says.
func TestModulesAreVerified(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "verify").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all modules verified") {
		t.Errorf("go mod verify: %v\n%s", err, out)
	}
}

// siteLicenses are those of the packages that build the site of the documentation.
var siteLicenses = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT"}

// TestSitePackageLicenses: packages of the site are allowed and name no host.
func TestSitePackageLicenses(t *testing.T) {
	raw, err := os.ReadFile("docs/.vitepress/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ License, Integrity, Resolved string }
	}
	if err := json.Unmarshal(raw, &lock); err != nil {
		t.Fatal(err)
	}
	delete(lock.Packages, "") // the site itself
	if len(lock.Packages) < 100 {
		t.Fatalf("the lock file names %d packages, want all", len(lock.Packages))
	}
	for name, p := range lock.Packages {
		if !slices.Contains(siteLicenses, p.License) {
			t.Errorf("%s is under the license %q, which is not in the list: read it", name, p.License)
		}
		if p.Integrity == "" {
			t.Errorf("%s has no hash, so npm installs whatever the registry has", name)
		}
		if p.Resolved != "" {
			t.Errorf("%s comes from %s: run npm in docs/.vitepress, whose .npmrc leaves the registry out", name, p.Resolved)
		}
	}
}
