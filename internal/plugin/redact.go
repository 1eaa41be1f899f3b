package plugin

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// removed stands for what a report does not have.
const removed = "[removed]"

var (
	// secretWord is in the names of what is secret. reference ends names of what only points to it, such as secretName.
	secretWord = regexp.MustCompile(`(?i)` + secretWords)
	reference  = regexp.MustCompile(`(?i)(name|names|ref|refs|file|files|path|dir|mode|version|seconds|hold)$`)
	// assigned is a name with such a word and its value, as in JSON, YAML, a query of a URL, or a flag.
	assigned = regexp.MustCompile(`(?i)([\w.-]*(?:` + secretWords + `)[\w.-]*)(\\*["']?\s*=\s*|\\*["']?[ \t]*:[ \t]*)(` + listForm +
		`|\\+"[^"]*"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'&]+)`)
	// yamlRest is an unquoted value in YAML, with the lines that continue it.
	yamlRest = regexp.MustCompile(`(?im)^([ \t]*(?:- )?[\w.-]*(?:` + secretWords + `)[\w.-]*[ \t]*:[ \t]+)([^\s"'{\[][^\n]*(?:\n[ \t]+[^\n]*)*)`)
	// spaced is a flag with its value behind a space.
	spaced = regexp.MustCompile(`(?i)(--?[\w.-]*(?:` + secretWords + `)[\w.-]*)(\s+)([^\s-]\S*)`)
	// known are secrets that their form gives away: private keys, age identities, tokens, AWS keys, users in URLs.
	known = []struct {
		form *regexp.Regexp
		by   string
	}{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), removed},
		{regexp.MustCompile(`(?i)AGE-SECRET-KEY-[A-Z0-9-]+`), removed},
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`), removed},
		{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{12,}`), removed},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}`), "$1 " + removed},
		{regexp.MustCompile(`://[^\s"<>]+@`), "://" + removed + "@"},
	}
	// secretLine is a line with a Secret that a program printed, and secretData its content.
	secretLine = regexp.MustCompile(`(?im)^.*\bkind\\*["']?\s*[:=]\s*\\*["']?Secret\b.*$`)
	secretData = regexp.MustCompile(`(?i)(\b(?:data|stringData)\\*["']?\s*[:=]\s*)(?:map\[[^\]]*(?:\]|$)|\{[^{}]*(?:\}|$))`)
	// opaque could be any key, if it has letters of both cases and digits. Names, paths and hashes in hexadecimal have not. The name of a
	// backup has two letters in upper case, T and Z.
	opaque = regexp.MustCompile(`[A-Za-z0-9+/_=-]{32,}`)
)

// listForm is a list of values: of texts in escaped quotes, of texts in quotes, or of anything.
const listForm = `\[(?:\s*\\+"[^"]*"\s*,?)+\s*\]|\[(?:\s*"(?:[^"\\]|\\.)*"\s*,?)+\s*\]|\[[^\]]*\]`

const secretWords = `passw|passphrase|secret|token|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|encryption[-_.]?key|` +
	`account[-_.]?key|signature|authorization|cookie`

// secretKey says whether the value of a field with this name is secret.
func secretKey(name string) bool { return secretWord.MatchString(name) && !reference.MatchString(name) }

// redactText removes what is secret from a text, such as a log.
func redactText(text string) string {
	text = secretLine.ReplaceAllStringFunc(text, func(line string) string { return secretData.ReplaceAllString(line, "${1}{}") })
	for _, k := range known {
		text = k.form.ReplaceAllString(text, k.by)
	}
	replace := func(form *regexp.Regexp) {
		text = form.ReplaceAllStringFunc(text, func(found string) string {
			parts := form.FindStringSubmatch(found)
			if !secretKey(strings.TrimLeft(strings.Trim(parts[1], " \t:"), "- ")) {
				return found
			}
			if len(parts) == 3 {
				return parts[1] + removed
			}
			return parts[1] + parts[2] + quotedLike(parts[3])
		})
	}
	replace(yamlRest)
	replace(assigned)
	replace(spaced)
	return opaque.ReplaceAllStringFunc(text, func(found string) string {
		if count(found, unicode.IsUpper) >= 3 && count(found, unicode.IsLower) >= 3 && count(found, unicode.IsDigit) > 0 {
			return removed
		}
		return found
	})
}

func count(text string, is func(rune) bool) (n int) {
	for _, r := range text {
		if is(r) {
			n++
		}
	}
	return n
}

// quotedLike is removed in the quotes of a value, so that JSON stays JSON.
func quotedLike(value string) string {
	if list, ok := strings.CutPrefix(value, "["); ok && value != removed {
		return "[" + quotedLike(strings.TrimSpace(list)) + "]"
	}
	switch i := strings.IndexAny(value, `"'`); {
	case i < 0:
		return removed
	default:
		open := value[:i+1]
		return open + removed + open
	}
}

// redactData removes what is secret from a text that is YAML or JSON, perhaps.
func redactData(text string) string {
	var fields map[string]any
	if yaml.Unmarshal([]byte(text), &fields) != nil || len(fields) == 0 {
		return redactText(text)
	}
	raw, err := yaml.Marshal(redactValue(fields))
	if err != nil {
		return removed
	}
	return string(raw)
}

// ownContainers are the containers that druid makes.
var ownContainers = []string{"druid", "install", containerAgent, containerEtcd, "snapshot"}

// keptOfOthers is what a report has of a container that another controller put into a Pod.
var keptOfOthers = []string{"name", "image", "imagePullPolicy", "resources", "ports", "restartPolicy", "env"}

// keptAnnotations are the prefixes of the annotations that a report has. Others can have anything, such as the object itself.
var keptAnnotations = []string{"etcd.druid.dev/", "deployment.kubernetes.io/", "pv.kubernetes.io/", "volume.kubernetes.io/",
	"volume.beta.kubernetes.io/", "controller-gen.kubebuilder.io/"}

// redactValue removes what is secret from an object of Kubernetes, or a part of it.
func redactValue(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return redactMap(v)
	case []any:
		for i := range v {
			flag, isText := "", false
			if i > 0 {
				flag, isText = v[i-1].(string)
			}
			if isText && strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && secretKey(flag) {
				if next, ok := v[i].(string); ok && !strings.HasPrefix(next, "-") {
					v[i] = removed
					continue
				}
			}
			v[i] = redactValue(v[i])
		}
		return v
	case string:
		return redactString(v)
	default:
		return v
	}
}

// redactString removes what is secret from a text that is JSON, perhaps.
func redactString(text string) string {
	var inner any
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if json.Unmarshal([]byte(trimmed), &inner) == nil {
			if raw, err := json.Marshal(redactValue(inner)); err == nil {
				return redactText(string(raw))
			}
			return removed
		}
	}
	return redactText(text)
}

func redactMap(fields map[string]any) map[string]any {
	name, _ := fields["name"].(string)
	if fields["kind"] == "Secret" {
		delete(fields, "data")
		delete(fields, "stringData")
	}
	for key, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			fields[key] = redactField(key, v)
		case []any:
			fields[key] = redactList(key, v)
		case string:
			if secretKey(key) || key == "value" && secretKey(name) {
				fields[key] = removed
			} else {
				fields[key] = redactString(v)
			}
		default: // a number says nothing
		}
	}
	delete(fields, "managedFields")
	delete(fields, "binaryData")
	return fields
}

// redactField removes what is secret from a field that is a map.
func redactField(key string, inner map[string]any) map[string]any {
	switch {
	case key == "annotations":
		return redactAnnotations(inner)
	case key == "data": // of a ConfigMap
		for file, content := range inner {
			text, _ := content.(string)
			if inner[file] = redactData(text); secretKey(file) {
				inner[file] = removed
			}
		}
		return inner
	case key == "volumeAttributes", key == "options", secretKey(key) && !strings.Contains(strings.ToLower(key), "secret"):
		return emptied(inner)
	default:
		return redactMap(inner)
	}
}

// redactList removes what is secret from a field that is a list.
func redactList(key string, items []any) any {
	switch key {
	case "env":
		return redactEnv(items)
	case "containers", "initContainers", "ephemeralContainers":
		return redactContainers(items)
	}
	if secretKey(key) {
		for i, item := range items {
			if fields, ok := item.(map[string]any); ok {
				items[i] = redactField(key, fields)
			} else {
				items[i] = removed
			}
		}
		return items
	}
	return redactValue(items)
}

// emptied removes all texts of a map but names.
func emptied(fields map[string]any) map[string]any {
	for key, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			fields[key] = emptied(v)
		case string, []any:
			if key != "name" && key != "namespace" {
				fields[key] = removed
			}
		}
	}
	return fields
}

func redactAnnotations(all map[string]any) map[string]any {
	for key, value := range all {
		text, _ := value.(string)
		if slices.ContainsFunc(keptAnnotations, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			all[key] = redactString(text)
		} else {
			all[key] = removed
		}
	}
	return all
}

// redactEnv removes the values, and keeps the names and where values come from.
func redactEnv(all []any) []any {
	for i, item := range all {
		fields, ok := item.(map[string]any)
		if !ok {
			all[i] = removed
			continue
		}
		if _, has := fields["value"]; has {
			fields["value"] = removed
		}
	}
	return all
}

func redactContainers(all []any) []any {
	for i, item := range all {
		fields, ok := item.(map[string]any)
		if !ok {
			all[i] = removed
			continue
		}
		if name, _ := fields["name"].(string); !slices.Contains(ownContainers, name) {
			for key := range fields {
				if !slices.Contains(keptOfOthers, key) {
					fields[key] = removed
				}
			}
		}
		all[i] = redactMap(fields)
	}
	return all
}
